-- +goose Up

-- procaas: works with 86

-- Kept events are counted by this index alone, for all keys together. The condition about since is that of runs_aside.
create index runs_kept on runs (flow, since) where place = 'scheduled' and error_class = 'kept' and since > '-infinity';
