package language

import (
	"embed"
	"reflect"
	"sync"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Cluster is a set of workers that share partitions. One worker serves a partition at a time. A pipeline with a
// trigger and the handlers balancer.observe, balancer.decide and balancer.apply decides which one.
type Cluster struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the cluster.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Workers lists the workers that serve partitions.
	Workers []*ClusterWorker `yaml:"workers"`

	// Discover finds the workers with a request, instead of a list.
	Discover *Discovery `yaml:"discover"`

	// Partitions is the number of partitions. Never change it while the cluster exists.
	Partitions int `yaml:"partitions" required:"true" min:"1" max:"100000"`

	// Map says which workers may serve which partitions. Without it every worker may serve every partition.
	Map *PartitionMap `yaml:"map"`

	// Healthcheck says how the balancer asks workers for their load.
	Healthcheck *Healthcheck `yaml:"healthcheck"`

	// Policy decides about moves. v1 moves partitions off workers that do not answer. v2 also relieves overloaded
	// workers. v3 also evens out weights. v4 also limits how often a partition moves. v5 makes moves that are worth
	// their cost.
	Policy string `yaml:"policy" enum:"v1,v2,v3,v4,v5" default:"v5"`

	// Parameters tune the policy. The defaults need no tuning.
	Parameters *PolicyParameters `yaml:"parameters"`

	// Step is the time between two observations: the period of the trigger.
	Step time.Duration `yaml:"step" default:"2s" min:"100ms" max:"10m"`

	// Key says where requests to workers have their key: header:NAME, query:NAME or path:N. N counts the segments of the path from 1.
	Key string `yaml:"key" default:"header:Procaas-Key"`

	// Secret is the name of a secret, as in !secret. Its value is the bearer token that proves to workers that an order
	// is from the balancer. Without it orders have no token.
	Secret string `yaml:"secret" pattern:"secret"`

	// Owner is the team that looks after the cluster.
	Owner string `yaml:"owner"`

	// Held is the mapping from workers to partitions, from the file too that it may be
	// in; nil when a rule makes the map.
	Held *expr.Value `yaml:"-"`
}

// A ClusterWorker is one worker of a cluster.
type ClusterWorker struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the worker. A worker that returns with the same id counts as the same worker.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// URL is the address of the worker: scheme, host, port and an optional path.
	URL string `yaml:"url" required:"true"`

	// Zone is what fails as a unit, such as a rack or a data centre.
	Zone string `yaml:"zone"`

	// Capacity is how much the worker can do, in the same unit for all workers. 0 means unknown.
	Capacity float64 `yaml:"capacity" min:"0" max:"1e12"`
}

// A Discovery finds workers with a request. The reply is JSON: a list of workers, or a mapping with workers. Each
// worker has id and url, and may have zone and capacity. A worker that disappears from the list is treated like one
// that does not answer. If the request fails, the last reply stays valid.
type Discovery struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// URL is the URL for the GET request.
	URL string `yaml:"url" required:"true"`

	// Timeout is the longest time of the request.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"1ms" max:"1m"`

	// Networks lists ranges of private addresses that workers may have, such as 10.0.0.0/8. Public addresses are always
	// allowed. This keeps a reply from directing calls to arbitrary addresses.
	Networks []string `yaml:"networks"`
}

// A PartitionMap says which workers may serve a partition: by a rule, in a mapping or in a file. With a rule, little
// changes when a worker joins or leaves.
type PartitionMap struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Rule chooses the workers of each partition: neighbours on a ring, workers of different zones, random ones, or
	// all. Its default is random.
	Rule string `yaml:"rule" enum:"ring,zone,random,all"`

	// Replicas is how many workers may serve a partition. Its default is 3.
	Replicas int `yaml:"replicas" min:"1" max:"1000"`

	// Seed changes the random choice.
	Seed int `yaml:"seed"`

	// Workers is the map itself, instead of a rule. It has the partitions of each worker: a list of numbers and of ranges such as "0-99".
	Workers *expr.Value `yaml:"workers" kind:"map" expr:"no"`

	// File is a JSON or YAML file with such a mapping, relative to this file.
	File string `yaml:"file"`
}

// A Healthcheck says how the balancer asks workers. The reply to the extended healthcheck is JSON. requests and drops
// count what the worker served and dropped in the last window_s seconds. partitions has the requests of each partition
// in that time. busy is the share of time spent working. age_s is the age of the process in seconds. draining reports
// whether it is about to stop. Missing fields are unknown.
type Healthcheck struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Path is the extended healthcheck, appended to the URL of the worker. {id} stands for its id.
	Path string `yaml:"path" default:"/healthcheck"`

	// Ping is the fallback when the extended healthcheck returns another status than 200 or no valid report. Status 200
	// means that the worker is alive.
	Ping string `yaml:"ping" default:"/ping"`

	// Timeout is the longest time of each of the two. The balancer asks all workers at the same time.
	Timeout time.Duration `yaml:"timeout" default:"1s" min:"10ms" max:"1m"`
}

// PolicyParameters tune the policies of the balancer.
type PolicyParameters struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Cycle is the time between two decisions of v1 to v4.
	Cycle time.Duration `yaml:"cycle" default:"10s" min:"0s" max:"1h"`

	// Overload is the share of drops from which v2 to v4 call a worker overloaded. It compares the median of the drops
	// in the last minute with the requests that the worker serves.
	Overload float64 `yaml:"overload" default:"0.01" min:"0" max:"1"`

	// GiniHigh is the Gini index above which v3 and v4 start to even out weights.
	GiniHigh float64 `yaml:"gini-high" default:"0.12" min:"0" max:"1"`

	// GiniLow is the Gini index below which they stop.
	GiniLow float64 `yaml:"gini-low" default:"0.08" min:"0" max:"1"`

	// Friction is how often v4 may move a partition within friction-time.
	Friction int `yaml:"friction" default:"1" min:"1" max:"1000000"`

	// FrictionTime is how long v4 remembers a move.
	FrictionTime time.Duration `yaml:"friction-time" default:"10m" min:"0s" max:"24h"`

	// Horizon is how far v5 looks ahead.
	Horizon time.Duration `yaml:"horizon" default:"5m" min:"1s" max:"24h"`

	// Margin is how much more than its cost a move of v5 must be worth, in multiples of the cost. A higher margin means fewer moves.
	Margin float64 `yaml:"margin" default:"1" min:"0" max:"1000"`

	// FixedCost is what a move costs in addition to the drops that it causes, for v5. The unit is what a worker does in one second.
	FixedCost float64 `yaml:"fixed-cost" default:"0.2" min:"0" max:"1000"`

	// Budget limits the voluntary moves of v5 per minute, as a share of all partitions, but at least five. The limit is
	// three times as high while the cluster drops requests.
	Budget float64 `yaml:"budget" default:"0.06" min:"0" max:"1000"`

	// NoReturn is how long v5 does not move a partition back.
	NoReturn time.Duration `yaml:"no-return" default:"10m" min:"0s" max:"24h"`
}

// A clusters is the section of files.
type clusters struct {
	// Clusters are sets of workers that share partitions. One worker serves a partition at a time.
	Clusters []*Cluster `yaml:"clusters"`
}

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

//go:embed cluster.go
var source embed.FS

// sectionSpec describes the section.
var sectionSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[clusters](), spec.Read(source)) })

// ClustersOf lists the clusters of a bundle.
func ClustersOf(b *tree.Bundle) []*Cluster { return tree.In[*Cluster](b, "clusters") }

// ClusterOf returns a cluster of a bundle by its id, or nil.
func ClusterOf(b *tree.Bundle, id string) *Cluster {
	for _, c := range ClustersOf(b) {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Members returns the declared workers.
func (c *Cluster) Members() []ClusterWorker {
	out := make([]ClusterWorker, len(c.Workers))
	for i, w := range c.Workers {
		out[i] = *w
	}
	return out
}
