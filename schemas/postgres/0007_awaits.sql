-- +goose Up

-- The types of events that a parked run waits for, as a JSON array, and the seq of the last one of its key that it has looked at.
alter table runs add column awaits text;
alter table runs add column heard bigint not null default 0;
