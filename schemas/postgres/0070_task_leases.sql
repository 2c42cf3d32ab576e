-- +goose Up

-- A claim writes no entry of any index, so that PostgreSQL writes the task again in its own page (HOT). For that, no index may
-- depend on what a claim changes: state, until, worker, begun, epoch. So a column of its own says which index lists a task:
--
-- listed: 0 tasks_ready    ready, or taken a moment ago
--         1 those of tasks that wait for others of their key
--         2 tasks_counted  taken, of a type that bounds how many are
--         3 none           taken, and its worker has been heard of since
alter table tasks add column listed smallint not null default 0;
drop index if exists tasks_ready, tasks_until, tasks_counted, tasks_waiting, tasks_aside;
update tasks set listed = case when state = 3 then 1 when counted and until is not null then 2 else 3 end where state > 0;
alter table tasks drop column counted;
alter table tasks add constraint tasks_listed check (case state when 0 then listed = 0 when 3 then listed = 1 else listed <> 1 end);
create index tasks_ready on tasks (type, rank, deadline, id) where listed = 0;
create index tasks_counted on tasks (type, key) where listed = 2;
create index tasks_waiting on tasks (type, key, rank, deadline, id) where listed = 1;
create index tasks_aside on tasks (type, rank, deadline, id) where listed = 1;

-- There must be room in the page for the second version of each of its tasks.
alter table tasks set (fillfactor = 40);

-- Each task that is taken is in a row here that says when to look whether its worker was heard of: at the end of its lease or
-- sooner. A claim writes one row for all that it takes. Whoever looks forgets those that have ended.
create table task_leases (
    until timestamptz not null,
    ids   bigint[]    not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index task_leases_until on task_leases (until);
insert into task_leases (until, ids) select min(until), array_agg(id) from tasks where until is not null group by id / 1000;

-- Tasks on their way to another database know nothing of lists yet.
update task_parcels set rows = jsonb_set(rows::jsonb, '{tasks}', (
    select coalesce(jsonb_agg(t || jsonb_build_object('listed', case (t->>'state')::int when 0 then 0 when 3 then 1 else 3 end)), '[]')
    from jsonb_array_elements(rows::jsonb->'tasks') t))::text;
