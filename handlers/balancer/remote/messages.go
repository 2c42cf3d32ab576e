// Package remote has the JSON messages of the calls about clusters, and calls them on a server. The tags of a field are its
// only declaration: requests are read, checked and described by them.
package remote

import (
	"time"

	"procaas/handlers/balancer/clusters"
)

// A Route says where a key leads.
type Route struct {
	Cluster   string                  `json:"cluster" doc:"The cluster's id."`
	Version   int64                   `json:"version" doc:"The version of the assignment, which grows with each change."`
	Partition int                     `json:"partition" doc:"The partition of the key, from 0: the jump consistent hash of its 64-bit FNV-1a hash, mixed by the finisher of MurmurHash3."`
	Worker    clusters.AssignedWorker `json:"worker" doc:"The worker that serves the partition at this version."`
}

// A LeverChange is the body of the call that pulls a lever.
type LeverChange struct {
	Worker    string    `json:"worker,omitempty" doc:"For ban, drain and pin: the id of the worker."`
	Zone      string    `json:"zone,omitempty" doc:"For drain, instead of a worker: all workers of the zone."`
	Partition *int      `json:"partition,omitempty" doc:"For pin: the number of the partition, from 0."`
	Until     time.Time `json:"until,omitzero" doc:"When it ends. The default is never."`
	Reason    string    `json:"reason" maxLength:"512" want:"say why, for all who wonder later" doc:"The reason, for people and the audit."`
}
