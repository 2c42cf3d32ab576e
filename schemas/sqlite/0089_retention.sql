-- +goose Up
-- procaas: works with 86

-- Runs leave by the retention of their pipeline.
create index history_ended on history (pipeline, ended);

-- The id of an event whose run has left before it.
alter table events add column alone integer;
create index events_alone on events (accepted) where alone = 1;
update events set alone = 1 where source not like 'procaas/trigger/%'
and not exists (select 1 from runs where runs.id = events.run) and not exists (select 1 from history where history.id = events.run);
