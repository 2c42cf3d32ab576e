-- +goose Up

-- The ids of events that runs emit with a source of their author's are known apart from
-- those that senders submit. Which rows are of which kind cannot be told any more, so
-- what was accepted before counts for both.
insert into events (source, id, run, hash, accepted, slot)
select 'procaas/emitted/' || source, id, run, hash, accepted, slot from events
where source <> '' and not starts_with(source, 'procaas/')
on conflict do nothing;
