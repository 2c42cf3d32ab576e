package schemas

import "embed"

// SQLite holds the migrations of the embedded store, below sqlite/.
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Postgres holds the migrations of the store of production, below postgres/.
//
//go:embed postgres/*.sql
var Postgres embed.FS

// Shards holds the migrations of the shards of a map, below shards/: the fence.
//
//go:embed shards/*.sql
var Shards embed.FS

// LockShard keeps apart who makes something in the schema procaas of a shard, and MakeShard
// makes that schema. A session remembers names that were not there, and an advisory lock that
// it has waited for does not make it look again; to read a table does.
const (
	LockShard = `select pg_advisory_xact_lock(8104927)`
	MakeShard = `do $$ begin
	if not exists (select from pg_namespace where nspname = 'procaas') then create schema procaas; end if;
end $$`
)
