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
