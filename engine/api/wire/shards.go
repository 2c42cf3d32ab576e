package wire

import "procaas/engine/transfers"

// A ShardBatch asks where many keys live.
type ShardBatch struct {
	Keys   []string `json:"keys" maxItems:"1000" bytes:"1000" want:"want 1 to 1000 keys" doc:"The keys, each with its parts joined by slashes."`
	Mode   string   `json:"mode,omitempty" enum:"master,replica,any" doc:"What the hosts are for; master when it is left out."`
	MaxLag Duration `json:"max-lag,omitempty" doc:"How far a replica may be behind: text such as 2s, or a number of seconds."`
	MinLSN string   `json:"min-lsn,omitempty" doc:"The position of the log that a replica must have replayed, such as 16/B374D848."`
	DC     string   `json:"dc,omitempty" doc:"The data centre of the asker."`
}

// A ShardBatchItem is the answer for one key of a batch.
type ShardBatchItem struct {
	Key    string                 `json:"key" doc:"The key."`
	Answer *transfers.ShardAnswer `json:"answer,omitempty" doc:"Where it lives."`
	Code   string                 `json:"code,omitempty" doc:"Why there is no answer, for programs."`
	Detail string                 `json:"detail,omitempty" doc:"The same for people."`
}

// A ShardChangeRequest changes what was decided of a shard.
type ShardChangeRequest struct {
	Closed   *string `json:"closed,omitempty" maxLength:"512" doc:"Why registration is closed; empty text opens it."`
	Draining *string `json:"draining,omitempty" maxLength:"512" doc:"Why all keys are to leave; empty text lets them stay."`
	Reason   string  `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// A ShardRegroupRequest says where to divide a placement, or which one ends.
type ShardRegroupRequest struct {
	At     string `json:"at" minLength:"1" maxLength:"1000" bytes:"any" doc:"A key, or the bound of a stretch of keys."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Change nothing, and tell what would be."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}

// A TransferOrderRequest tells a transfer what an operator wants.
type TransferOrderRequest struct {
	Want   string `json:"want" enum:"pause,resume,cancel,rollback,finish" by:"engine" doc:"pause, resume, cancel, rollback, or finish: end the time in which it may be rolled back."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people."`
}
