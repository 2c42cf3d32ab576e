-- +goose Up
-- procaas: works with 86

-- The pipeline for whose retention the id of an event is kept, once that of the node is over; null before that.
alter table events add column kept_for text collate "C";
