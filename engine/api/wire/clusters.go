package wire

import (
	"time"

	"procaas/engine/clusters"
)

// A Route is where a key leads.
type Route struct {
	Cluster   string                  `json:"cluster" doc:"The cluster's id."`
	Version   int64                   `json:"version" doc:"Of the assignment that says so; it grows with each change."`
	Partition int                     `json:"partition" doc:"Of the key, from 0: its 64-bit FNV-1a hash, mixed by the finisher of MurmurHash3, in the jump consistent hash."`
	Worker    clusters.AssignedWorker `json:"worker" doc:"Who serves the partition at this version."`
}

// A LeverChange is the body that pulls a lever.
type LeverChange struct {
	Worker    string    `json:"worker,omitempty" doc:"Of ban, drain and pin: the worker's id."`
	Zone      string    `json:"zone,omitempty" doc:"Of drain, in place of a worker: all workers of the zone."`
	Partition *int      `json:"partition,omitempty" doc:"Of pin: the partition's number, from 0."`
	Until     time.Time `json:"until,omitzero" doc:"When it ends by itself; never when it is left out."`
	Reason    string    `json:"reason" maxLength:"512" want:"say why, for all who wonder later" doc:"Why, for people and the audit."`
}
