// Package api serves the calls about clusters: which worker serves what, and the levers of
// balancers.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
	"procaas/handlers/balancer/remote"
)

// Clusters shows which worker of a cluster serves what, and why, and steers the balancers.
type Clusters interface {
	Bundle() *tree.Bundle
	Assignment(ctx context.Context, cluster string) (clusters.Assignment, error)
	AwaitAssignment(ctx context.Context, cluster string, after int64) (clusters.Assignment, error)
	ClusterStatus(ctx context.Context, cluster string) (clusters.ClusterStatus, error)
	TickFailure(ctx context.Context, cluster string) (*clusters.TickFailure, error)
	ClusterMoves(ctx context.Context, cluster string) ([]clusters.MoveLog, error)
	ClusterRecording(ctx context.Context, cluster string) (clusters.Recording, error)
	ExplainPartition(ctx context.Context, cluster string, partition int) (clusters.PartitionView, error)
	PullLever(ctx context.Context, cluster string, pull clusters.LeverPull, by store.Actor) (clusters.Levers, error)
}

// A Group serves the calls about clusters.
type Group struct {
	Clusters Clusters
	Streams  *rest.Streams
}

// Calls describes the group in the API.
func Calls(of Clusters) api.Group {
	return api.Group{
		Tag: "clusters", About: "Find the worker that serves a key.", Before: "shards",
		Operations: func(s api.Server) []rest.Operation { return (&Group{Clusters: of, Streams: s.Streams}).Operations() },
	}
}

// longestWait bounds how long a caller may wait for news.
const longestWait = time.Minute

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	refusals, unknown := []string{problem.InvalidParameter, problem.StoreUnavailable}, []problem.Kind{clusterNotFound}
	return append([]rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/clusters/{cluster}/route", ID: "route-key", Need: rest.Views, Tag: "clusters",
			Summary:  "Find the worker that serves a key",
			About:    "A caller with many keys should follow the assignment instead, and compute the partition itself.",
			Replies:  rest.OK("The worker."),
			Refusals: refusals, Problems: []problem.Kind{clusterNotFound, noWorker},
		}, g.routeKey),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/clusters/{cluster}/assignment", ID: "get-assignment", Need: rest.Views, Tag: "clusters",
			Summary: "Read which worker serves which partition, or wait for a change",
			About: "With `Accept: text/event-stream` the server sends each newer assignment as an event, until the stream ends. The id of " +
				"the event is the version. Reconnect with `Last-Event-ID` to continue from there.\n\n" +
				"Versions are unique. The versions that a client sees never decrease if it passes the last one in `after`.",
			Replies: []rest.Reply{
				{About: "The assignment.", Body: clusters.Assignment{}, ContentType: rest.MediaStream},
				{Status: http.StatusNoContent, About: "There is no assignment, or no later one."},
			},
			Refusals: refusals, Problems: unknown,
		}, g.assignment),
	}, g.leverOperations(refusals, unknown)...)
}

// A clusterPath names a cluster.
type clusterPath struct {
	Cluster string `path:"cluster" doc:"The cluster's id."`
}

// check refuses an unknown cluster.
func (g *Group) check(in *clusterPath) error {
	b := g.Clusters.Bundle()
	if language.ClusterOf(b, in.Cluster) != nil {
		return nil
	}
	var known []string
	for _, c := range language.ClustersOf(b) {
		known = append(known, c.ID)
	}
	return clusterNotFound.New("there is no cluster %q%s", in.Cluster, problem.Meant(in.Cluster, known))
}

type routeKey struct {
	clusterPath
	Key string `query:"key" bytes:"any" required:"true" want:"want the key that is looked for" doc:"The key of the request."`
}

func (g *Group) routeKey(c *rest.Call, in *routeKey) (route remote.Route, err error) {
	if err := g.check(&in.clusterPath); err != nil {
		return route, err
	}
	a, err := g.Clusters.Assignment(c.Context(), in.Cluster)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(a.Owners) == 0 {
		return route, noWorker.New("nothing has been assigned in the cluster %s yet", in.Cluster).With("Retry-After", "1")
	}
	if err != nil {
		return route, err
	}
	p := engine.PartitionOf(in.Key, len(a.Owners))
	owner, ok := a.Owner(p)
	if !ok {
		return route, noWorker.New("partition %d of the cluster %s is on no worker at present", p,
			in.Cluster).With("Retry-After", "1")
	}
	return remote.Route{Cluster: in.Cluster, Version: a.Version, Partition: p, Worker: owner}, nil
}

// A newsQuery says which news a caller wants, and how long it waits.
type newsQuery struct {
	clusterPath
	After string `query:"after" type:"integer" format:"int64" minimum:"0" doc:"Only a version after this one."`
	Wait  string `query:"wait" doc:"How long to wait for it, such as 20s; at most 1m. The default is not to wait."`
	Last  string `header:"Last-Event-ID" doc:"For a stream, instead of after."`
}

// read returns the version after which there is news, and the wait.
func (q *newsQuery) read() (after int64, wait time.Duration, err error) {
	text, location := q.After, "query/after"
	if q.Last != "" {
		text, location = q.Last, "header/last-event-id"
	}
	if text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			return 0, 0, problem.Parameter([]problem.Fault{{Location: location, Message: "want the version of an assignment, such as 17, or 0"}})
		}
	}
	if q.Wait != "" {
		if wait, err = time.ParseDuration(q.Wait); err != nil || wait < 0 || wait > longestWait {
			return 0, 0, problem.Parameter([]problem.Fault{{Location: "query/wait", Message: "want a duration such as 20s, at most 1m"}})
		}
	}
	return after, wait, nil
}

// assignment answers at once, when there is a later assignment or the time is over, or as a stream.
// Without news it replies 204, so that a caller need not compare versions.
func (g *Group) assignment(c *rest.Call, in *newsQuery) (*clusters.Assignment, error) {
	if err := g.check(&in.clusterPath); err != nil {
		return nil, err
	}
	after, wait, err := in.read()
	if err != nil {
		return nil, err
	}
	if rest.WantsStream(c.R) {
		return nil, g.stream(c, in.Cluster, after)
	}
	a, err := g.assignmentAfter(c, in.Cluster, after, wait)
	if a == nil && err == nil {
		c.Answered()
		c.W.WriteHeader(http.StatusNoContent)
	}
	return a, err
}

// assignmentAfter waits for a later assignment, or returns nil.
func (g *Group) assignmentAfter(c *rest.Call, cluster string, after int64, wait time.Duration) (*clusters.Assignment, error) {
	a, err := g.Clusters.Assignment(c.Context(), cluster)
	switch {
	case err == nil && a.Version > after:
		return &a, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, err
	case wait == 0:
		return nil, nil
	}
	ctx, cancel := g.Streams.UntilEnd(c.Context(), wait)
	defer cancel()
	if err := rest.LetLast(c.W, wait+rest.WriteTime); err != nil {
		return nil, err
	}
	a, err = g.Clusters.AwaitAssignment(ctx, cluster, after)
	if ctx.Err() != nil {
		return nil, nil
	}
	return &a, err
}

// stream sends each later assignment.
func (g *Group) stream(c *rest.Call, cluster string, after int64) error {
	return g.Streams.Stream(c, func(ctx context.Context) (rest.Event, error) {
		a, err := g.Clusters.AwaitAssignment(ctx, cluster, after)
		if ctx.Err() != nil {
			return rest.Event{}, nil
		}
		if err != nil {
			return rest.Event{}, err
		}
		after = a.Version
		data, err := json.Marshal(a)
		return rest.Event{ID: strconv.FormatInt(a.Version, 10), Name: "assignment", Data: data}, err
	})
}
