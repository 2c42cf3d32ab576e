-- +goose Up

-- The ids of a claim stay in their row as they are. To compress them took a tenth of the time of a claim.
alter table task_leases alter column ids set storage external;
alter table task_leases set (toast_tuple_target = 8160);
