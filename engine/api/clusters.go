package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// Clusters tells which worker of a cluster serves what.
type Clusters interface {
	Assignment(ctx context.Context, cluster string) (engine.Assignment, error)
	AwaitAssignment(ctx context.Context, cluster string, after int64) (engine.Assignment, error)
}

// A Route is where a key leads.
type Route struct {
	Cluster   string                `json:"cluster" doc:"The cluster's id."`
	Version   int64                 `json:"version" doc:"Of the assignment that says so; it grows with each change."`
	Partition int                   `json:"partition" doc:"Of the key, from 0: its 64-bit FNV-1a hash, mixed by the finisher of MurmurHash3, in the jump consistent hash."`
	Worker    engine.AssignedWorker `json:"worker" doc:"Who serves the partition at this version."`
}

// longestWait bounds what a caller may wait for news.
const longestWait = time.Minute

func (s *server) clusterOperations() []operation {
	cluster := inPath("cluster", "The cluster's id.")
	refusals := []string{codeClusterNotFound, codeInvalidParameter, codeStoreUnavailable}
	return []operation{
		{
			method: http.MethodGet, path: "/v1/clusters/{cluster}/route", id: "route-key", tag: "clusters",
			summary:  "Find the worker that serves a key",
			about:    "Callers with many keys follow the assignment instead, and compute the partition themselves.",
			params:   []*huma.Param{cluster, required(inQuery("key", "What the request is about.", nil))},
			replies:  []reply{{status: 200, about: "The worker.", body: Route{}}},
			refusals: append(refusals, codeNoWorker), serve: s.routeKey,
		},
		{
			method: http.MethodGet, path: "/v1/clusters/{cluster}/assignment", id: "get-assignment", tag: "clusters",
			summary: "Read which worker serves which partition, or wait for that to change",
			about: "With `Accept: text/event-stream` each newer assignment comes as an event, whose id is its version, until the stream ends; " +
				"whoever comes back with `Last-Event-ID` goes on from there.\n\n" +
				"A version is never there twice, and the versions that one client sees never go back as long as it names the last in `after`.",
			params: []*huma.Param{
				cluster,
				inQuery("after", "Only a version later than this one.", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(float64)}),
				inQuery("wait", "How long to wait for it, such as 20s; at most 1m. Without it nobody waits.", nil),
				inHeader("Last-Event-ID", "Of a stream: in place of after."),
			},
			replies: []reply{
				{status: 200, about: "The assignment.", body: engine.Assignment{}, contentType: mediaStream},
				{status: 204, about: "There is none, or none that is later."},
			},
			refusals: refusals, serve: s.getAssignment,
		},
	}
}

// required marks a parameter that must be there; those of queries may be left out otherwise.
func required(p *huma.Param) *huma.Param {
	p.Required = true
	return p
}

// clusterOf gives the id of the cluster that a request names.
func (s *server) clusterOf(r *http.Request) (string, error) {
	id, err := pathValue(r, "cluster")
	if err == nil && s.engine.Bundle().Cluster(id) == nil {
		var known []string
		for _, c := range s.engine.Bundle().Clusters {
			known = append(known, c.ID)
		}
		err = refuse(codeClusterNotFound, "there is no cluster %q%s", id, meant(id, known))
	}
	return id, err
}

func (s *server) routeKey(w http.ResponseWriter, r *http.Request) error {
	cluster, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	key := q.str("key")
	if key == "" && len(q.faults) == 0 {
		q.fault("key", "want the key that is looked for")
	}
	if err := badParameter(q.faults); err != nil {
		return err
	}
	a, err := s.engine.Assignment(r.Context(), cluster)
	if errors.Is(err, engine.ErrNotFound) || err == nil && len(a.Owners) == 0 {
		return refuse(codeNoWorker, "nothing has been assigned in the cluster %s yet", cluster).with("Retry-After", "1")
	}
	if err != nil {
		return err
	}
	p := engine.PartitionOf(key, len(a.Owners))
	owner, ok := a.Owner(p)
	if !ok {
		return refuse(codeNoWorker, "partition %d of the cluster %s is on no worker at present", p, cluster).with("Retry-After", "1")
	}
	return writeJSON(w, http.StatusOK, Route{Cluster: cluster, Version: a.Version, Partition: p, Worker: owner})
}

// getAssignment answers in three ways: at once, when there is a later assignment or time, or as
// a stream. No news is 204, so that a caller need not compare versions.
func (s *server) getAssignment(w http.ResponseWriter, r *http.Request) error {
	cluster, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	after, wait, err := news(r)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return s.streamAssignments(w, r, cluster, after)
	}
	a, err := s.assignmentAfter(r.Context(), w, cluster, after, wait)
	if err != nil {
		return err
	}
	if a == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeJSON(w, http.StatusOK, a)
}

// assignmentAfter waits for a later assignment; nil when none comes.
func (s *server) assignmentAfter(ctx context.Context, w http.ResponseWriter, cluster string, after int64, wait time.Duration) (*engine.Assignment, error) {
	a, err := s.engine.Assignment(ctx, cluster)
	switch {
	case err == nil && a.Version > after:
		return &a, nil
	case err != nil && !errors.Is(err, engine.ErrNotFound):
		return nil, err
	case wait == 0:
		return nil, nil
	}
	ctx, cancel := s.untilEnd(ctx, wait)
	defer cancel()
	if err := lasts(w, wait+writeTime); err != nil {
		return nil, err
	}
	a, err = s.engine.AwaitAssignment(ctx, cluster, after)
	if ctx.Err() != nil {
		return nil, nil
	}
	return &a, err
}

// streamAssignments sends each later assignment.
func (s *server) streamAssignments(w http.ResponseWriter, r *http.Request, cluster string, after int64) error {
	return s.stream(w, r, needs["get-assignment"], func(ctx context.Context) (event, error) {
		a, err := s.engine.AwaitAssignment(ctx, cluster, after)
		if ctx.Err() != nil {
			return event{}, nil
		}
		if err != nil {
			return event{}, err
		}
		after = a.Version
		data, err := json.Marshal(a)
		return event{strconv.FormatInt(a.Version, 10), "assignment", data}, err
	})
}

// news reads which news a caller wants, and how long it waits for them.
func news(r *http.Request) (after int64, wait time.Duration, err error) {
	query := r.URL.Query()
	text, location := query.Get("after"), "query/after"
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		text, location = last, "header/last-event-id"
	}
	if text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return 0, 0, badParameter([]Fault{{Location: location, Message: "want the version of an assignment, such as 17, or 0"}})
		}
	}
	if text := query.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > longestWait {
			return 0, 0, badParameter([]Fault{{Location: "query/wait", Message: "want a duration such as 20s, at most 1m"}})
		}
	}
	return after, wait, nil
}
