-- +goose Up

-- Checkpoints have another form, which older programs do not read. They refuse a file with this version.
select 1;
