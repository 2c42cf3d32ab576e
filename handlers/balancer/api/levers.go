package api

import (
	"errors"
	"net/http"
	"strconv"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/store"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
	"procaas/handlers/balancer/remote"
)

// This file lets operators view and steer the balancers of clusters.

func (g *Group) leverOperations(refusals []string, unknown []problem.Kind) []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/clusters", ID: "list-clusters", Need: rest.Views, Tag: "admin",
			Summary: "List clusters with the last observation of their balancers",
			Replies: rest.OK("All clusters, in the order of the definition."), Refusals: []string{problem.StoreUnavailable},
		}, g.list),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/clusters/{cluster}", ID: "get-cluster", Need: rest.Views, Tag: "admin",
			Summary: "Read a cluster: its workers, their loads, and its levers", Replies: rest.OK("The cluster."),
			Refusals: refusals, Problems: unknown,
		}, g.get),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/clusters/{cluster}/moves", ID: "list-moves", Need: rest.Views, Tag: "admin",
			Summary: "List the latest moves of partitions with their reasons, newest first", Replies: rest.OK("The moves."),
			Refusals: refusals, Problems: unknown,
		}, g.moves),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/clusters/{cluster}/recording",
			ID: "record-cluster", Need: rest.Surveys, Tag: "admin",
			Summary: "Read recent observations, to replay them with other policies",
			About:   "It has the observations of the last 15 minutes, and what a policy knows in advance.",
			Replies: rest.OK("The recording."), Refusals: refusals, Problems: unknown,
		}, g.recording),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/clusters/{cluster}/partitions/{partition}",
			ID: "explain-partition", Need: rest.Views, Tag: "admin",
			Summary: "Explain why a worker serves a partition", Replies: rest.OK("The partition."), Refusals: refusals, Problems: unknown,
		}, g.explain),
		rest.Typed(rest.Operation{
			Method: http.MethodPut, Path: "/admin/v1/clusters/{cluster}/levers/{lever}", ID: "pull-lever", Need: rest.Tunes, Tag: "admin",
			Summary: "Set a lever: ban, drain, pin, freeze, dry-run or evacuate",
			About: "ban takes all partitions off a worker at once. drain does so gradually. pin keeps a partition on a worker while the " +
				"worker is up. freeze stops all moves. dry-run shows moves without making them. evacuate moves partitions off silent workers even if half of the " +
				"cluster is silent. A lever takes effect at the next observation and is audited.",
			Example: remote.LeverChange{Worker: "worker-3", Reason: "its disk is full"},
			Replies: rest.OK("All levers that are set."), Refusals: refusals, Problems: []problem.Kind{clusterNotFound, invalidLever},
		}, g.pull),
		rest.Typed(rest.Operation{
			Method: http.MethodDelete, Path: "/admin/v1/clusters/{cluster}/levers/{lever}",
			ID: "release-lever", Need: rest.Tunes, Tag: "admin",
			Summary: "Release a lever", Replies: rest.OK("All levers that remain."), Refusals: refusals,
			Problems: []problem.Kind{clusterNotFound, invalidLever, leverNotFound},
		}, g.release),
	}
}

func (g *Group) list(c *rest.Call, _ *rest.Nothing) (page wire.Page[clusters.ClusterView], err error) {
	views := []clusters.ClusterView{}
	for _, cluster := range language.ClustersOf(g.Clusters.Bundle()) {
		v, err := g.view(c, cluster.ID)
		if err != nil {
			return page, err
		}
		views = append(views, v)
	}
	return wire.PageOf(views, ""), nil
}

func (g *Group) get(c *rest.Call, in *clusterPath) (v clusters.ClusterView, err error) {
	if err := g.check(in); err != nil {
		return v, err
	}
	v, err = g.view(c, in.Cluster)
	return v, leverProblem(err, in.Cluster)
}

// view reads a cluster. It shows the error of the last tick only to those who may read the run.
func (g *Group) view(c *rest.Call, cluster string) (v clusters.ClusterView, err error) {
	status, err := g.Clusters.ClusterStatus(c.Context(), cluster)
	if err != nil {
		return v, err
	}
	failure, err := g.Clusters.TickFailure(c.Context(), cluster)
	if err != nil {
		return v, err
	}
	v = status.View()
	if failure != nil && c.MayRead(failure.Pipeline) == nil {
		v.Failure = failure
	}
	return v, nil
}

type movesQuery struct {
	clusterPath
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most moves."`
}

// moves reverses the log, which the store keeps oldest first.
func (g *Group) moves(c *rest.Call, in *movesQuery) (page wire.Page[clusters.MoveLog], err error) {
	if err := g.check(&in.clusterPath); err != nil {
		return page, err
	}
	moves, err := g.Clusters.ClusterMoves(c.Context(), in.Cluster)
	newest := []clusters.MoveLog{}
	for i := len(moves) - 1; i >= 0 && len(newest) < in.Limit; i-- {
		newest = append(newest, moves[i])
	}
	return wire.PageOf(newest, ""), leverProblem(err, in.Cluster)
}

func (g *Group) recording(c *rest.Call, in *clusterPath) (recording clusters.Recording, err error) {
	if err := g.check(in); err != nil {
		return recording, err
	}
	recording, err = g.Clusters.ClusterRecording(c.Context(), in.Cluster)
	return recording, leverProblem(err, in.Cluster)
}

type partitionPath struct {
	clusterPath
	Partition string `path:"partition" doc:"Its number, from 0."`
}

func (g *Group) explain(c *rest.Call, in *partitionPath) (v clusters.PartitionView, err error) {
	if err := g.check(&in.clusterPath); err != nil {
		return v, err
	}
	cluster := language.ClusterOf(g.Clusters.Bundle(), in.Cluster)
	if cluster == nil { // a reload has removed it meanwhile
		return v, leverProblem(clusters.ErrNoCluster, in.Cluster)
	}
	n, err := strconv.Atoi(in.Partition)
	last := cluster.Partitions - 1
	if err != nil || n < 0 || n > last {
		return v, problem.Parameter([]problem.Fault{
			{Location: "path/partition", Message: "want a number from 0 to " + strconv.Itoa(last) + ", have " + rest.Shown(in.Partition)},
		})
	}
	v, err = g.Clusters.ExplainPartition(c.Context(), in.Cluster, n)
	return v, leverProblem(err, in.Cluster)
}

// A leverPath names a lever of a cluster.
type leverPath struct {
	clusterPath
	Lever string `path:"lever" doc:"ban, drain, pin, freeze, dry-run or evacuate."`
}

type pullLever struct {
	leverPath
	Body remote.LeverChange
}

func (g *Group) pull(c *rest.Call, in *pullLever) (clusters.Levers, error) {
	b := &in.Body
	pull := clusters.LeverPull{Lever: in.Lever, Worker: b.Worker, Zone: b.Zone, Partition: -1, Until: b.Until}
	if b.Partition != nil {
		pull.Partition = *b.Partition
	}
	return g.steer(c, &in.leverPath, pull, b.Reason)
}

type releaseLever struct {
	leverPath
	Worker    string `query:"worker" doc:"For ban and drain: the worker."`
	Zone      string `query:"zone" doc:"For drain, instead of a worker: the zone."`
	Partition *int   `query:"partition" doc:"For pin: the partition."`
	Reason    string `query:"reason" bytes:"512" doc:"The reason, for people and the audit."`
}

func (g *Group) release(c *rest.Call, in *releaseLever) (clusters.Levers, error) {
	pull := clusters.LeverPull{Lever: in.Lever, Worker: in.Worker, Zone: in.Zone, Partition: -1, Release: true}
	if n := in.Partition; n != nil && *n < 0 {
		return clusters.Levers{}, problem.Parameter([]problem.Fault{
			{Location: "query/partition", Message: "want the number of a partition, have " + rest.Shown(*n)},
		})
	} else if n != nil {
		pull.Partition = *n
	}
	return g.steer(c, &in.leverPath, pull, in.Reason)
}

// steer pulls or releases a lever, and returns all levers in force.
func (g *Group) steer(c *rest.Call, in *leverPath, pull clusters.LeverPull, reason string) (levers clusters.Levers, err error) {
	if err := g.check(&in.clusterPath); err != nil {
		return levers, err
	}
	levers, err = g.Clusters.PullLever(c.Context(), in.Cluster, pull, c.Actor(reason))
	return levers, leverProblem(err, in.Cluster)
}

// leverProblem converts an error of the engine to a problem.
func leverProblem(err error, cluster string) error {
	var refused *clusters.LeverError
	switch {
	case errors.Is(err, clusters.ErrNoCluster):
		return clusterNotFound.New("there is no cluster %q", cluster)
	case errors.Is(err, store.ErrNotFound):
		return leverNotFound.New("nobody has pulled this lever of cluster %s", cluster)
	case errors.As(err, &refused):
		return invalidLever.New("%s", refused.Error())
	}
	return err
}
