package schemas

import "embed"

// SQLite has the migrations of the SQLite store, below sqlite/.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Postgres has the migrations of the PostgreSQL store, below postgres/.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// Shards has the migrations of the shards of a map, below shards/: the fence.
//
//go:embed shards/*.sql
var Shards embed.FS

// LockShard serializes changes of the schema procaas in a shard. MakeShard creates that schema. It reads pg_namespace,
// since a session caches that a name is missing, and waiting for an advisory lock does not invalidate this.
const (
	LockShard = `select pg_advisory_xact_lock(8104927)`
	MakeShard = `do $$ begin
	if not exists (select from pg_namespace where nspname = 'procaas') then create schema procaas; end if;
end $$`
)
