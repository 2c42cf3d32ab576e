package transfers

import (
	"context"
	"errors"
	"time"

	"procaas/engine/store"
)

// This file has the interface of shard maps for the API and the command line. Package shardmap
// implements it.

// Callers of shard maps test for these errors.
var (
	// ErrShardMap reports that there is no such shard map, or that the node has none.
	ErrShardMap = errors.New("no such shard map")

	// ErrShard reports that the map has no such shard.
	ErrShard = errors.New("no such shard")

	// ErrShardKey reports that a text is not a key of the map.
	ErrShardKey = errors.New("no such key can be")

	// ErrUnplaced reports that the key has no placement, and gets none.
	ErrUnplaced = errors.New("the key has no placement")

	// ErrNoHost reports that no host of the shard can serve the question.
	ErrNoHost = errors.New("no host is fit")

	// ErrShardBusy reports that a transfer has the key, or the shard refuses the change.
	ErrShardBusy = errors.New("the shard or the key is busy")

	// ErrShardFindings reports that a preflight stops the transfers of a shard.
	ErrShardFindings = errors.New("shard check finds errors, and nothing was changed")
)

// ShardMaps answers where keys live. Each change is audited. If the change is in the store's
// database, its transaction has the record. If it is on a shard, there is a record before and after
// it. So every change has a record.
type ShardMaps interface {
	// Resolve returns where a key lives.
	Resolve(ctx context.Context, shardMap string, q ShardQuestion) (ShardAnswer, error)

	// Watch returns the placements that have changed since a position from an earlier call. It
	// waits for a change until ctx ends. The position is empty if there is none yet.
	Watch(ctx context.Context, shardMap, after string) (ShardChanges, error)

	// MapViews describes all maps.
	MapViews(ctx context.Context) ([]ShardMapView, error)

	// Shards describes the shards of a map.
	Shards(ctx context.Context, shardMap string) ([]ShardView, error)

	// SetShard changes the run-time settings of a shard.
	SetShard(ctx context.Context, shardMap, shard string, c ShardChange, by store.Actor) (ShardView, error)

	// SplitShard gives a part of a placement its own placement on the same shard: in a map by range
	// the keys from a bound on, in others one key. With dry it changes nothing.
	SplitShard(ctx context.Context, shardMap, at string, dry bool, by store.Actor) (ShardRegroup, error)

	// MergeShard ends a placement. Its rows belong to the placement that it was split from. In a
	// map by range, it ends the stretch that begins at a bound, whose keys belong to the one
	// before.
	MergeShard(ctx context.Context, shardMap, at string, dry bool, by store.Actor) (ShardRegroup, error)

	// CheckShards returns what a preflight finds on a shard, or on all shards for an empty id. It
	// changes nothing.
	CheckShards(ctx context.Context, shardMap, shard string) (ShardCheck, error)

	// EnrollShard prepares a shard, unless a preflight finds an error.
	EnrollShard(ctx context.Context, shardMap, shard string, by store.Actor) (ShardEnrollment, error)

	// RemoveMap removes what a map that is not declared any more has on its shards. It goes on if a
	// shard fails, and may be repeated.
	RemoveMap(ctx context.Context, shardMap string, ask ShardRemove, by store.Actor) (ShardRemoval, error)
}

// QuickShardMaps are [ShardMaps] that know from memory where most keys live.
type QuickShardMaps interface {
	ShardMaps

	// AppendAnswer appends the answer of Resolve as JSON with a line break, for a question with a
	// mode, which is never empty, and a data center. If only Resolve can answer, ok is false and
	// nothing is appended.
	AppendAnswer(to []byte, shardMap, key, mode, dc string) (answer []byte, ok bool)
}

// These are the modes of a question.
const (
	ShardMaster  = "master"
	ShardReplica = "replica"
	ShardAny     = "any"
)

// A ShardQuestion asks where a key lives.
type ShardQuestion struct {
	Key        string        // its parts joined by slashes
	Mode       string        // master, replica or any
	MaxLag     time.Duration // largest lag of a replica; 0 for any
	MinLSN     uint64        // position that a replica must have replayed
	DC         string        // data center of the caller; may be empty
	AfterEpoch int64         // wait until the placement has a later epoch; 0 does not wait
	Known      bool          // do not register an unknown key
}

// A ShardAnswer says where a key lives.
type ShardAnswer struct {
	Map       string           `json:"map" doc:"The shard map."`
	Key       string           `json:"key" doc:"The key that was asked for."`
	Placement string           `json:"placement" doc:"The placement of the key, for procaas.guard."`
	Shard     string           `json:"shard" doc:"The shard that has the key."`
	Class     string           `json:"class" doc:"The class of the shard."`
	Epoch     int64            `json:"epoch" doc:"The epoch of the placement, for procaas.guard."`
	Hosts     []ShardHostBrief `json:"hosts" doc:"Hosts in the order in which to try them, the best first."`
	DSN       string           `json:"dsn" doc:"The connection string with these hosts, without a password."`
	Moving    bool             `json:"moving,omitempty" doc:"true if a transfer moves the key."`
	Stale     bool             `json:"stale,omitempty" doc:"true if the information about the hosts is older than three seconds."`
}

// A ShardHostBrief is a host in an answer.
type ShardHostBrief struct {
	Address string `json:"address" doc:"Host and port."`
	DC      string `json:"dc,omitempty" doc:"The data centre."`
	Role    string `json:"role" doc:"master, replica or unknown."`
	LagMS   int64  `json:"lag_ms,omitempty" doc:"The lag of the replica, in milliseconds."`
}

// ShardChanges are placements that have changed.
type ShardChanges struct {
	Next  string           `json:"next" doc:"The position for the next call."`
	Reset bool             `json:"reset,omitempty" doc:"true if the position is too old or of another node: discard everything."`
	Items []ShardPlacement `json:"items" doc:"The placements, as they are now."`
}

// A ShardPlacement is a placement in a feed of changes.
type ShardPlacement struct {
	Placement string `json:"placement" doc:"Its key."`
	Shard     string `json:"shard" doc:"The shard that has it."`
	Epoch     int64  `json:"epoch" doc:"Its epoch."`
	Moving    bool   `json:"moving,omitempty" doc:"true if a transfer moves it."`
}

// A ShardMapView describes a shard map.
type ShardMapView struct {
	ID       string   `json:"id" doc:"The map."`
	Key      []string `json:"key" doc:"The parts of a key."`
	Strategy string   `json:"strategy" doc:"directory, slots or range."`
	Owner    string   `json:"owner,omitempty" doc:"The team that looks after it."`
	Shards   int      `json:"shards" doc:"The number of shards."`
	Loaded   int64    `json:"loaded" doc:"The number of placements that this node knows."`
}

// A ShardView describes a shard.
type ShardView struct {
	Map          string          `json:"map" doc:"The shard map."`
	ID           string          `json:"id" doc:"The shard."`
	Place        int             `json:"place" doc:"Its place among the shards of the map, from 0, which it keeps. Ranges of sequences go by it."`
	Class        string          `json:"class" doc:"Its class."`
	Registration bool            `json:"registration" doc:"true if it takes new keys now."`
	Transfer     bool            `json:"transfer" doc:"true if keys may move to it now."`
	Closed       string          `json:"closed,omitempty" doc:"The reason why registration was closed at run time."`
	Draining     string          `json:"draining,omitempty" doc:"The reason why it drains."`
	DrainSeconds int64           `json:"drain_seconds,omitempty" doc:"How long it takes from now until a drain has moved its keys, as estimated."`
	DrainAsked   *time.Time      `json:"drain_asked,omitempty" doc:"When it was last told to drain."`
	Placements   int64           `json:"placements" doc:"The number of its placements."`
	Capacity     int64           `json:"capacity" doc:"How much data fits on it, in bytes."`
	Used         int64           `json:"used" doc:"Its data in bytes, as last measured."`
	Usage        float64         `json:"usage" doc:"Used as a share of capacity."`
	Load         float64         `json:"load" doc:"Busy connections of its master as a share of its limit, as last measured."`
	Connections  int             `json:"connections" doc:"Connections of clients to its master, as last measured."`
	Master       string          `json:"master,omitempty" doc:"The address of the master; empty if there is none."`
	Problem      string          `json:"problem,omitempty" doc:"The reason why there is no master, or why it takes no writes."`
	Hosts        []ShardHostView `json:"hosts" doc:"Its hosts, as declared."`
}

const (
	// drainRate is how many small keys a drain moves in an hour at least.
	drainRate = 3000

	// copyRate is how many bytes a drain copies in a second at least.
	copyRate = 10 << 20

	// drainSample is how many keys a drain has moved before its own speed counts.
	drainSample = 10
)

// DrainTime estimates how long a drain of the shard takes from now. It uses the speed of the current
// drain, as soon as there is one. all are the transfers of the map.
func (v *ShardView) DrainTime(all []ShardTransfer) time.Duration {
	var first, last time.Time
	n := 0
	for _, t := range all {
		if t.Source != v.ID || t.State != TransferDone || v.DrainAsked == nil || t.Started.Before(*v.DrainAsked) {
			continue
		}
		n++
		if n == 1 || t.Changed.Before(first) {
			first = t.Changed
		}
		if t.Changed.After(last) {
			last = t.Changed
		}
	}
	if v.Draining != "" && n >= drainSample {
		return last.Sub(first) / time.Duration(n-1) * time.Duration(v.Placements)
	}
	return time.Duration(v.Placements)*time.Hour/drainRate + time.Duration(float64(v.Used)/copyRate*float64(time.Second))
}

// A ShardHostView describes a host.
type ShardHostView struct {
	Address  string `json:"address" doc:"Host and port."`
	DC       string `json:"dc,omitempty" doc:"The data centre."`
	Role     string `json:"role" doc:"master, replica or unknown."`
	Alive    bool   `json:"alive" doc:"Whether it answers."`
	Timeline int    `json:"timeline,omitempty" doc:"The timeline of its log."`
	LSN      string `json:"lsn,omitempty" doc:"The position of its log."`
	LagMS    int64  `json:"lag_ms" doc:"The lag of a replica, in milliseconds."`
	Load     int    `json:"load" doc:"Busy connections."`

	Connections    int       `json:"connections" doc:"Connections of clients."`
	MaxConnections int       `json:"max_connections,omitempty" doc:"The limit of connections."`
	Seen           time.Time `json:"seen,omitzero" doc:"When it last answered."`
	Error          string    `json:"error,omitempty" doc:"The error if it does not."`
}

// A ShardChange changes the run-time settings of a shard. Nil keeps a setting, and an empty reason
// removes it.
type ShardChange struct {
	Closed   *string `json:"closed,omitempty" doc:"Why registration is closed; empty opens it."`
	Draining *string `json:"draining,omitempty" doc:"Why all keys are to leave; empty lets them stay."`
}

// A ShardRegroup says which placement was divided, or which two were merged.
type ShardRegroup struct {
	Map     string `json:"map" doc:"The shard map."`
	Wide    string `json:"wide" doc:"The placement that was divided, or that received the keys."`
	Narrow  string `json:"narrow" doc:"The placement that was split off, or that ended."`
	Shard   string `json:"shard" doc:"The shard that has both."`
	Changed bool   `json:"changed" doc:"true if anything changed."`
	DryRun  bool   `json:"dry_run,omitempty" doc:"true if nothing was changed, because it was a dry run."`
}

// A ShardEnrollment says what enrolling has found and done.
type ShardEnrollment struct {
	Map          string   `json:"map" doc:"The shard map."`
	Shard        string   `json:"shard" doc:"The shard."`
	Reasons      []string `json:"reasons" doc:"The reasons of a refusal, which changed nothing."`
	Warnings     []string `json:"warnings" doc:"Things to check."`
	Publications []string `json:"publications" doc:"The present publications."`
	Fences       int      `json:"fences" doc:"The number of missing fences."`
}

// A ShardRemove says how to remove a map from its shards.
type ShardRemove struct {
	DryRun bool // change nothing
	Forget bool // also forget the map and its placements, even if a shard fails
}

// A ShardRemoval says what a map had on its shards.
type ShardRemoval struct {
	Map        string         `json:"map" doc:"The shard map."`
	Shards     []ShardRemains `json:"shards" doc:"What was removed from each shard, or would be."`
	Placements int64          `json:"placements" doc:"The placements of the map in the store."`
	Forgotten  bool           `json:"forgotten,omitempty" doc:"true if the store has forgotten the map and its placements."`
	DryRun     bool           `json:"dry_run,omitempty" doc:"true if nothing was changed, because it was a dry run."`
}

// ShardRemains are what a map has on a shard.
type ShardRemains struct {
	Shard        string   `json:"shard" doc:"The shard."`
	Fences       int64    `json:"fences" doc:"The number of fences."`
	Publications []string `json:"publications" doc:"The publications."`
	Slots        []string `json:"slots" doc:"The replication slots."`
	Error        string   `json:"error,omitempty" doc:"The error, if something may be left."`
}

// These are the levels of a finding.
const (
	FindingError   = "error"   // nothing on the shard is changed while there is one
	FindingWarning = "warning" // holds nothing up
)

// A ShardFinding says what is wrong with a shard, or may become so.
type ShardFinding struct {
	Shard   string `json:"shard,omitempty" doc:"The shard."`
	Level   string `json:"level" doc:"error: nothing on the shard is changed while it is open. warning: it holds nothing up."`
	Table   string `json:"table,omitempty" doc:"The table. Empty for the server."`
	Problem string `json:"problem" doc:"What was found."`
	Effect  string `json:"effect" doc:"What would happen."`
	Mend    string `json:"mend" doc:"What to do about it."`

	StopsTransfers bool `json:"stops_transfers,omitempty" doc:"true if no transfer from or to the shard begins while it is open."`
}

// String returns the finding in one line, without its shard and level.
func (f ShardFinding) String() string {
	text := f.Problem + ": " + f.Effect + "; " + f.Mend
	if f.Table != "" {
		text = "table " + f.Table + ": " + text
	}
	return text
}

// A ShardCheck says what a preflight has found.
type ShardCheck struct {
	Map      string         `json:"map" doc:"The shard map."`
	Findings []ShardFinding `json:"findings" doc:"What was found on its shards, in their order."`
}
