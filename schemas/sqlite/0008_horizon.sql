-- +goose Up

-- Nobody leaves a transaction open in a file that one process has. The number is that of PostgreSQL's migration.
select 1;
