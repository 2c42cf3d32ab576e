// Package remote has the JSON messages of the calls about shard maps and transfers, and calls them on a server. The tags of a field are its
// only declaration: requests are read, checked and described by them.
package remote

import (
	"procaas/engine/api/wire"
	"procaas/handlers/sharding/transfers"
)

// A ShardBatch asks where many keys live.
type ShardBatch struct {
	Keys   []string      `json:"keys" maxItems:"1000" bytes:"1000" want:"want 1 to 1000 keys" doc:"The keys, each with its parts joined by slashes."`
	Mode   string        `json:"mode,omitempty" enum:"master,replica,any" doc:"The purpose of the hosts. The default is master."`
	MaxLag wire.Duration `json:"max-lag,omitempty" doc:"The largest lag of a replica: text such as 2s, or seconds."`
	MinLSN string        `json:"min-lsn,omitempty" doc:"The position of the log that a replica must have replayed, such as 16/B374D848."`
	DC     string        `json:"dc,omitempty" doc:"The data centre that asks."`
}

// A ShardBatchItem is the answer for one key of a batch.
type ShardBatchItem struct {
	Key    string                 `json:"key" doc:"The key."`
	Answer *transfers.ShardAnswer `json:"answer,omitempty" doc:"The place of the key."`
	Code   string                 `json:"code,omitempty" doc:"The code of the reason why there is no answer."`
	Detail string                 `json:"detail,omitempty" doc:"The reason, for people."`
}

// A ShardChangeRequest changes the settings of a shard.
type ShardChangeRequest struct {
	Closed   *string `json:"closed,omitempty" maxLength:"512" doc:"The reason to close registration; empty text opens it."`
	Draining *string `json:"draining,omitempty" maxLength:"512" doc:"The reason to drain the shard; empty text ends the drain."`
	Reason   string  `json:"reason,omitempty" maxLength:"512" doc:"The error, for people."`
}

// A ShardRegroupRequest says where to split a placement, or which one to merge.
type ShardRegroupRequest struct {
	At     string `json:"at" minLength:"1" maxLength:"1000" bytes:"any" doc:"A key, or the bound of a range of keys."`
	DryRun bool   `json:"dry_run,omitempty" doc:"true changes nothing, and returns the result."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The error, for people."`
}

// A ShardRemoveRequest says how to remove a map from its shards.
type ShardRemoveRequest struct {
	DryRun bool   `json:"dry_run,omitempty" doc:"true changes nothing, and returns what would be removed."`
	Forget bool   `json:"forget,omitempty" doc:"true also deletes the map and its placements from the store, even if a shard fails."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The reason, for people."`
}

// A TransferOrderRequest is an operator's order for a transfer.
type TransferOrderRequest struct {
	Want   string `json:"want" enum:"pause,resume,cancel,rollback,finish" by:"engine" doc:"pause, resume, cancel, rollback, or finish, which ends the time for a rollback."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"The error, for people."`
}
