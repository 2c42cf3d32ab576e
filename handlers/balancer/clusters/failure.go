package clusters

import (
	"context"
	"strings"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/balancer/language"
)

// A TickFailure says why the balancer's last tick of a cluster failed.
type TickFailure struct {
	Run      string    `json:"run"`
	Pipeline string    `json:"pipeline"`
	Handler  string    `json:"handler,omitempty" doc:"The path of the handler that failed the run."`
	At       time.Time `json:"at"`
	Error    string    `json:"error"`
}

// handlerTypes is the beginning of the names of the balancer's handler types.
const handlerTypes = "balancer."

// balances reports whether a pipeline has ticks of a cluster, and whether it has those of any cluster
// that an event names.
func balances(p *tree.Pipeline, cluster string) (ticks, computed bool) {
	for _, stage := range p.Stages {
		for _, h := range stage.Handlers {
			if !strings.HasPrefix(h.Type, handlerTypes) {
				continue
			}
			data, fixed := h.Body.Get("cluster").Literal()
			if !fixed {
				computed = true
			} else if data == cluster {
				return true, false
			}
		}
	}
	return computed, computed
}

// TickFailure returns why the last tick of a cluster failed. It returns nil if the last tick that
// ended has succeeded, or if there was none. The error is [ErrNoCluster].
func (a *Clusters) TickFailure(ctx context.Context, cluster string) (*TickFailure, error) {
	b := a.bundle()
	if language.ClusterOf(b, cluster) == nil {
		return nil, ErrNoCluster
	}
	var last *TickFailure
	for _, p := range b.Pipelines {
		ticks, computed := balances(p, cluster)
		if !ticks {
			continue
		}
		f := store.RunFilter{Pipeline: p.ID, Limit: 1, Brief: true}
		if computed {
			f.Key = cluster // by convention, since nothing else tells the clusters of its runs apart
		}
		found, err := a.failure(ctx, f)
		if err != nil {
			return nil, err
		}
		if found != nil && (last == nil || found.At.After(last.At)) {
			last = found
		}
	}
	return last, nil
}

// failure returns the newest failed run that a filter chooses, if no later one has succeeded.
func (a *Clusters) failure(ctx context.Context, f store.RunFilter) (*TickFailure, error) {
	f.Status = model.Failed
	failed, _, err := a.runs.List(ctx, f)
	if err != nil || len(failed) == 0 {
		return nil, err
	}
	f.Status, f.Since = model.Succeeded, failed[0].Accepted
	done, _, err := a.runs.List(ctx, f)
	if err != nil || len(done) > 0 && done[0].Ended.After(failed[0].Ended) {
		return nil, err
	}
	r := failed[0]
	return &TickFailure{Run: r.ID, Pipeline: r.Pipeline, Handler: r.FailedPath, At: r.Ended, Error: r.Error}, nil
}
