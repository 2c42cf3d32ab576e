-- +goose Up
-- procaas: works with 86

-- The bytes of the bodies that calls sent. The column bytes has those of their replies.
alter table usage_days add column request_bytes integer not null default 0;
