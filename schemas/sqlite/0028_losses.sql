-- +goose Up

-- How many nodes in a row have died while they had the run, since it last got any further. Of a run that is suspected of
-- having brought them down, a death counts only when it was under trial.
alter table runs add column losses integer not null default 0;
alter table runs add column tried integer not null default 0;
