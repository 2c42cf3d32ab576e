-- +goose Up

-- Shard maps need PostgreSQL. The number is that of PostgreSQL's migration.
select 1;
