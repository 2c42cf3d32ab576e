-- +goose Up

-- Which programs can work with the tables. A program that does not know the last migration works with them if it knows version floor
-- of each history. That holds for tables up to a version: behind it, only programs that know the last migration work with them.
create table schema_floor (
    history text    primary key, -- the add-on; empty for the store itself
    version integer not null,
    floor   integer not null
) strict, without rowid;
