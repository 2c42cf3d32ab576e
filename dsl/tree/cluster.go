package tree

import (
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Cluster is a set of workers that share partitions: each partition is on one of
// them at a time. A pipeline on a trigger, with handlers balancer.observe,
// balancer.decide and balancer.apply, says on which.
type Cluster struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the cluster.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Workers lists who serves partitions.
	Workers []*ClusterWorker `yaml:"workers"`

	// Discover finds the workers by a request, in place of a list.
	Discover *Discovery `yaml:"discover"`

	// Partitions is how many parts the keys are divided into. It never changes while
	// the cluster lives.
	Partitions int `yaml:"partitions" required:"true" min:"1" max:"100000"`

	// Map says which workers may hold which partitions; any of them when it is left
	// out.
	Map *PartitionMap `yaml:"map"`

	// Healthcheck says how workers are asked how they are.
	Healthcheck *Healthcheck `yaml:"healthcheck"`

	// Policy decides about moves. v1 leaves workers that do not answer, v2 relieves
	// overloaded ones, too, v3 evens weights out, v4 lets no partition move often, and
	// v5 moves what is worth the cost of the move.
	Policy string `yaml:"policy" enum:"v1,v2,v3,v4,v5" default:"v5"`

	// Parameters tune the policy. The defaults need no tuning.
	Parameters *PolicyParameters `yaml:"parameters"`

	// Step is the time between two observations: the period of the trigger.
	Step time.Duration `yaml:"step" default:"2s" min:"100ms" max:"10m"`

	// Key says where requests that are passed on to workers have their key: header:NAME,
	// query:NAME or path:N, the segment of the path from 1.
	Key string `yaml:"key" default:"header:Procaas-Key"`

	// Secret is the name of the secret that proves to workers that orders are the
	// balancer's: its value is their bearer token. It is resolved as a !secret is. Without
	// it orders have no token.
	Secret string `yaml:"secret" pattern:"secret"`

	// Owner says who looks after the cluster.
	Owner string `yaml:"owner"`

	// Held is the mapping from workers to partitions, from the file too that it may be
	// in; nil when a rule makes the map.
	Held *expr.Value `yaml:"-"`
}

// A ClusterWorker is one worker of a cluster.
type ClusterWorker struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the worker. A worker that comes back under its id is the same one.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// URL is where the worker answers: scheme, host, port and an optional path.
	URL string `yaml:"url" required:"true"`

	// Zone is what fails together with it, such as a rack or a data centre.
	Zone string `yaml:"zone"`

	// Capacity is how much the worker can do, in any unit that is the same for all of
	// them; 0 when it is not known.
	Capacity float64 `yaml:"capacity" min:"0" max:"1e12"`
}

// A Discovery finds workers by a request. The reply is JSON: a list of workers, or a
// mapping with workers: each with id, url and perhaps zone and capacity. A worker that
// is not listed any more is treated as one that does not answer; when the request
// fails, the workers of the last reply count.
type Discovery struct {
	Span diag.Span `yaml:"-"`

	places

	// URL is asked with GET.
	URL string `yaml:"url" required:"true"`

	// Timeout bounds the request.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"1ms" max:"1m"`

	// Networks lists the ranges of addresses, such as 10.0.0.0/8, in which workers
	// may be besides public ones: a reply must not lead calls to any address.
	Networks []string `yaml:"networks"`
}

// A PartitionMap says which workers may hold a partition: by a rule, as a mapping or in a
// file. By a rule, a worker that comes or goes changes little of it.
type PartitionMap struct {
	Span diag.Span `yaml:"-"`

	places

	// Rule chooses the workers of each partition: neighbours on a ring, workers of
	// different zones, any at random, or all; random
	// when it is left out.
	Rule string `yaml:"rule" enum:"ring,zone,random,all"`

	// Replicas is how many workers may hold a partition; 3 when it is left out.
	Replicas int `yaml:"replicas" min:"1" max:"1000"`

	// Seed makes another choice of the same kind.
	Seed int `yaml:"seed"`

	// Workers is the map itself, in place of a rule: from each worker to its
	// partitions, a list of numbers and of ranges such as "0-99".
	Workers *expr.Value `yaml:"workers" kind:"map" expr:"no"`

	// File holds such a mapping instead: JSON or YAML, relative to this file.
	File string `yaml:"file"`
}

// A Healthcheck says how workers are asked. The reply to the extended one is JSON:
// requests and drops, how many were served and refused in the last window_s seconds;
// partitions, requests by partition in that time; busy, the share of the time spent
// working; age_s, seconds since the process began; draining, whether it is about to
// stop. What is left out is not known.
type Healthcheck struct {
	Span diag.Span `yaml:"-"`

	places

	// Path is the extended healthcheck, appended to the URL of the worker; {id}
	// stands for its id.
	Path string `yaml:"path" default:"/healthcheck"`

	// Ping is asked when the extended one is answered with another status than 200,
	// or with what is no report: a status of 200 tells that the worker lives.
	Ping string `yaml:"ping" default:"/ping"`

	// Timeout bounds each of the two. All workers are asked at once.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"10ms" max:"1m"`
}

// PolicyParameters tune the policies of the balancer.
type PolicyParameters struct {
	Span diag.Span `yaml:"-"`

	places

	// Cycle is how often v1 to v4 decide.
	Cycle time.Duration `yaml:"cycle" default:"10s" min:"0s" max:"1h"`

	// Overload is the share of what a worker serves beyond which the median of what
	// it has dropped in the last minute makes it overloaded, for v2 to v4.
	Overload float64 `yaml:"overload" default:"0.01" min:"0" max:"1"`

	// GiniHigh switches the even distribution of weights on, for v3 and v4.
	GiniHigh float64 `yaml:"gini-high" default:"0.12" min:"0" max:"1"`

	// GiniLow switches it off.
	GiniLow float64 `yaml:"gini-low" default:"0.08" min:"0" max:"1"`

	// Friction bounds the moves of a partition within friction-time, for v4.
	Friction int `yaml:"friction" default:"1" min:"1" max:"1000000"`

	// FrictionTime is how long v4 remembers a move.
	FrictionTime time.Duration `yaml:"friction-time" default:"10m" min:"0s" max:"24h"`

	// Horizon is how far v5 looks ahead.
	Horizon time.Duration `yaml:"horizon" default:"5m" min:"1s" max:"24h"`

	// Margin is how many times a move of v5 must be worth its cost, beyond once. More
	// means fewer moves.
	Margin float64 `yaml:"margin" default:"1" min:"0" max:"1000"`

	// FixedCost is what v5 takes a move to cost beyond the drops that it causes, as a
	// share of what a worker does in a second.
	FixedCost float64 `yaml:"fixed-cost" default:"0.2" min:"0" max:"1000"`

	// Budget bounds the voluntary moves of v5 in any minute, as a share of all
	// partitions, five at least. It is three times as much while the cluster drops.
	Budget float64 `yaml:"budget" default:"0.06" min:"0" max:"1000"`

	// NoReturn is how long v5 does not move a partition back.
	NoReturn time.Duration `yaml:"no-return" default:"10m" min:"0s" max:"24h"`
}

// Members lists the workers that are declared.
func (c *Cluster) Members() []ClusterWorker {
	out := make([]ClusterWorker, len(c.Workers))
	for i, w := range c.Workers {
		out[i] = *w
	}
	return out
}
