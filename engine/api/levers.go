package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// Levers steers the balancers of clusters.
type Levers interface {
	ClusterStatus(ctx context.Context, cluster string) (engine.ClusterStatus, error)
	ClusterMoves(ctx context.Context, cluster string) ([]engine.MoveLog, error)
	ClusterRecording(ctx context.Context, cluster string) (engine.Recording, error)
	ExplainPartition(ctx context.Context, cluster string, partition int) (engine.PartitionView, error)
	PullLever(ctx context.Context, cluster string, pull engine.LeverPull, by engine.Actor) (engine.Levers, error)
}

// A LeverChange is the body that pulls a lever.
type LeverChange struct {
	Worker    string `json:"worker,omitempty" doc:"Of ban, drain and pin: the worker's id."`
	Zone      string `json:"zone,omitempty" doc:"Of drain, in place of a worker: all workers of the zone."`
	Partition *int   `json:"partition,omitempty" doc:"Of pin: the partition's number, from 0."`
	Until     string `json:"until,omitempty" format:"date-time" doc:"When it ends by itself; never when it is left out."`
	Reason    string `json:"reason" maxLength:"512" doc:"Why, for people and the audit."`
}

func (s *server) leverOperations() []operation {
	cluster := inPath("cluster", "The cluster's id.")
	lever := inPath("lever", "ban, drain, pin, freeze or dry-run.")
	refusals := []string{codeClusterNotFound, codeInvalidParameter, codeStoreUnavailable}
	steered := []string{codeClusterNotFound, codeInvalidParameter, codeInvalidLever, codeStoreUnavailable}
	return []operation{
		{
			method: http.MethodGet, path: "/admin/v1/clusters", id: "list-clusters", tag: "admin",
			summary:  "List clusters with what their balancers have seen last",
			replies:  []reply{{status: 200, about: "All clusters, in the order of the definition.", body: Page[engine.ClusterView]{}}},
			refusals: []string{codeStoreUnavailable}, serve: s.listClusters,
		},
		{
			method: http.MethodGet, path: "/admin/v1/clusters/{cluster}", id: "get-cluster", tag: "admin",
			summary: "Read a cluster: its workers, how even it is, and its levers",
			params:  []*huma.Param{cluster}, replies: []reply{{status: 200, about: "The cluster.", body: engine.ClusterView{}}},
			refusals: refusals, serve: s.getCluster,
		},
		{
			method: http.MethodGet, path: "/admin/v1/clusters/{cluster}/moves", id: "list-moves", tag: "admin",
			summary: "List the last moves of partitions with their reasons, the newest first",
			params:  []*huma.Param{cluster, inQuery("limit", "The most moves.", limitSchema())},
			replies: []reply{{status: 200, about: "The moves.", body: Page[engine.MoveLog]{}}}, refusals: refusals, serve: s.listMoves,
		},
		{
			method: http.MethodGet, path: "/admin/v1/clusters/{cluster}/recording", id: "record-cluster", tag: "admin",
			summary: "Read what the balancer has seen lately, to replay it through other policies",
			about:   "It holds the observations that are kept, of a quarter of an hour, and what a policy knows beforehand.",
			params:  []*huma.Param{cluster}, replies: []reply{{status: 200, about: "The recording.", body: engine.Recording{}}},
			refusals: refusals, serve: s.recordCluster,
		},
		{
			method: http.MethodGet, path: "/admin/v1/clusters/{cluster}/partitions/{partition}", id: "explain-partition", tag: "admin",
			summary: "Tell why a partition is where it is",
			params:  []*huma.Param{cluster, inPath("partition", "Its number, from 0.")},
			replies: []reply{{status: 200, about: "The partition.", body: engine.PartitionView{}}}, refusals: refusals, serve: s.explainPartition,
		},
		{
			method: http.MethodPut, path: "/admin/v1/clusters/{cluster}/levers/{lever}", id: "pull-lever", tag: "admin",
			summary: "Ban a worker, drain a worker or a zone, pin a partition, freeze, or let moves be decided and not made",
			about: "ban takes all partitions off a worker at once, drain in good order; pin keeps a partition on a worker while that is up; " +
				"under freeze nothing moves at all, and dry-run tells what would. It counts from the next observation on, and is audited.",
			params:  []*huma.Param{cluster, lever},
			body:    jsonBody(s.schema(LeverChange{}), LeverChange{Worker: "worker-3", Reason: "its disk is full"}),
			replies: []reply{{status: 200, about: "All levers that hold.", body: engine.Levers{}}}, refusals: steered, serve: s.pullLever,
		},
		{
			method: http.MethodDelete, path: "/admin/v1/clusters/{cluster}/levers/{lever}", id: "release-lever", tag: "admin",
			summary: "Let a lever go",
			params: []*huma.Param{
				cluster, lever, inQuery("worker", "Of ban and drain.", nil), inQuery("zone", "Of drain, in place of a worker.", nil),
				inQuery("partition", "Of pin.", &huma.Schema{Type: huma.TypeInteger}), inQuery("reason", "Why, for people and the audit.", nil),
			},
			replies:  []reply{{status: 200, about: "All levers that still hold.", body: engine.Levers{}}},
			refusals: append(steered, codeLeverNotFound), serve: s.releaseLever,
		},
	}
}

func (s *server) listClusters(w http.ResponseWriter, r *http.Request) error {
	views := []engine.ClusterView{}
	for _, c := range s.engine.Bundle().Clusters {
		status, err := s.engine.ClusterStatus(r.Context(), c.ID)
		if err != nil {
			return err
		}
		views = append(views, status.View())
	}
	return writeJSON(w, http.StatusOK, pageOf(views, ""))
}

func (s *server) getCluster(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	status, err := s.engine.ClusterStatus(r.Context(), id)
	if err != nil {
		return leverProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, status.View())
}

// listMoves turns the log around: the store keeps it in the order in which moves were made.
func (s *server) listMoves(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	limit := q.pageSize()
	if err := badParameter(q.faults); err != nil {
		return err
	}
	moves, err := s.engine.ClusterMoves(r.Context(), id)
	if err != nil {
		return leverProblem(err, id)
	}
	newest := []engine.MoveLog{}
	for i := len(moves) - 1; i >= 0 && len(newest) < limit; i-- {
		newest = append(newest, moves[i])
	}
	return writeJSON(w, http.StatusOK, pageOf(newest, ""))
}

func (s *server) recordCluster(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	recording, err := s.engine.ClusterRecording(r.Context(), id)
	if err != nil {
		return leverProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, recording)
}

func (s *server) explainPartition(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	text, err := pathValue(r, "partition")
	if err != nil {
		return err
	}
	cluster := s.engine.Bundle().Cluster(id)
	if cluster == nil { // a reload has taken it away since
		return leverProblem(engine.ErrNoCluster, id)
	}
	n, err := strconv.Atoi(text)
	last := cluster.Partitions - 1
	if err != nil || n < 0 || n > last {
		return badParameter([]Fault{{Location: "path/partition", Message: "want a number from 0 to " + strconv.Itoa(last) + ", have " + shown(text)}})
	}
	view, err := s.engine.ExplainPartition(r.Context(), id, n)
	if err != nil {
		return leverProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, view)
}

func (s *server) pullLever(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	lever, err := pathValue(r, "lever")
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	pull := engine.LeverPull{Lever: lever, Worker: f.label("worker", maxName), Zone: f.label("zone", maxName), Partition: -1, Until: f.instant("until")}
	if f.get("partition") != nil {
		pull.Partition = int(f.integer("partition"))
	}
	reason := f.label("reason", maxReason)
	// Elsewhere it may be left out; a lever holds until somebody remembers what it is for.
	if reason == "" && len(f.faults) == 0 {
		f.fault("reason", "say why, for all who wonder later")
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	return s.steerCluster(w, r, id, pull, reason)
}

func (s *server) releaseLever(w http.ResponseWriter, r *http.Request) error {
	id, err := s.clusterOf(r)
	if err != nil {
		return err
	}
	lever, err := pathValue(r, "lever")
	if err != nil {
		return err
	}
	q := queryFields(r.URL.Query())
	pull := engine.LeverPull{Lever: lever, Worker: q.label("worker", maxName), Zone: q.label("zone", maxName), Partition: -1, Release: true}
	if text := q.label("partition", maxName); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			q.fault("partition", "want the number of a partition, have %s", shown(text))
		}
		pull.Partition = n
	}
	reason := q.label("reason", maxReason)
	if err := badParameter(q.faults); err != nil {
		return err
	}
	return s.steerCluster(w, r, id, pull, reason)
}

// steerCluster pulls a lever or lets it go, and replies with all that hold then.
func (s *server) steerCluster(w http.ResponseWriter, r *http.Request, id string, pull engine.LeverPull, reason string) error {
	levers, err := s.engine.PullLever(r.Context(), id, pull, actor(r, reason))
	if err != nil {
		return leverProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, levers)
}

// leverProblem says what an error of the engine means to a caller.
func leverProblem(err error, cluster string) error {
	var refused *engine.LeverError
	switch {
	case errors.Is(err, engine.ErrNoCluster):
		return refuse(codeClusterNotFound, "there is no cluster %q", cluster)
	case errors.Is(err, engine.ErrNotFound):
		return refuse(codeLeverNotFound, "nobody has pulled this lever of cluster %s", cluster)
	case errors.As(err, &refused):
		return refuse(codeInvalidLever, "%s", refused.Error())
	}
	return err
}

// Clusters lists the clusters of a server.
func (c *Client) Clusters(ctx context.Context) ([]engine.ClusterView, error) {
	var page Page[engine.ClusterView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/clusters", nil, nil, &page)
	return page.Items, err
}

// Cluster reads one of them.
func (c *Client) Cluster(ctx context.Context, id string) (engine.ClusterView, error) {
	var v engine.ClusterView
	err := c.call(ctx, http.MethodGet, clusterPath(id), nil, nil, &v)
	return v, err
}

// Moves lists the last moves of a cluster, the newest first.
func (c *Client) Moves(ctx context.Context, id string, limit int) ([]engine.MoveLog, error) {
	var page Page[engine.MoveLog]
	err := c.call(ctx, http.MethodGet, clusterPath(id)+"/moves?limit="+strconv.Itoa(limit), nil, nil, &page)
	return page.Items, err
}

// Recording reads what the balancer of a cluster has seen lately.
func (c *Client) Recording(ctx context.Context, id string) (engine.Recording, error) {
	var recording engine.Recording
	err := c.call(ctx, http.MethodGet, clusterPath(id)+"/recording", nil, nil, &recording)
	return recording, err
}

// ExplainPartition tells why a partition is where it is.
func (c *Client) ExplainPartition(ctx context.Context, id string, partition int) (engine.PartitionView, error) {
	var v engine.PartitionView
	err := c.call(ctx, http.MethodGet, clusterPath(id)+"/partitions/"+strconv.Itoa(partition), nil, nil, &v)
	return v, err
}

// PullLever pulls a lever of a cluster, or lets it go.
func (c *Client) PullLever(ctx context.Context, id string, pull engine.LeverPull, reason string) (engine.Levers, error) {
	var levers engine.Levers
	path := clusterPath(id) + "/levers/" + url.PathEscape(pull.Lever)
	if !pull.Release {
		change := LeverChange{Worker: pull.Worker, Zone: pull.Zone, Until: timeText(pull.Until), Reason: reason}
		if pull.Partition >= 0 {
			change.Partition = &pull.Partition
		}
		err := c.call(ctx, http.MethodPut, path, change, nil, &levers)
		return levers, err
	}
	q := url.Values{}
	for name, value := range map[string]string{"worker": pull.Worker, "zone": pull.Zone, "reason": reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if pull.Partition >= 0 {
		q.Set("partition", strconv.Itoa(pull.Partition))
	}
	err := c.call(ctx, http.MethodDelete, path+"?"+q.Encode(), nil, nil, &levers)
	return levers, err
}

// clusterPath is the address of a cluster among the calls of operators.
func clusterPath(id string) string { return "/admin/v1/clusters/" + url.PathEscape(id) }
