-- +goose Up

-- The ids of events that runs emit with a source of their author's are known apart from
-- those that senders submit. Which rows are of which kind cannot be told any more, so
-- what was accepted before counts for both.
insert or ignore into events (source, id, run, hash, accepted)
select 'procaas/emitted/' || source, id, run, hash, accepted from events
where source <> '' and substr(source, 1, 8) <> 'procaas/';
