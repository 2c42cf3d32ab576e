-- +goose Up

-- One process has the file, so nothing is kept of its counts. The number is that of PostgreSQL's migration.
select 1;
