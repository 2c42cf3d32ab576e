-- +goose Up

-- SQLite finds what is taken by type and key as before. The number is that of PostgreSQL's migration.
select 1;
