package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/wire"
	"procaas/engine/clusters"
)

// clustersCalls are the calls about clusters.
type clustersCalls struct{ *caller }

// Clusters lists the clusters of a server.
func (c clustersCalls) Clusters(ctx context.Context) ([]clusters.ClusterView, error) {
	return list[clusters.ClusterView](ctx, c.caller, "/admin/v1/clusters")
}

// Cluster reads one cluster.
func (c clustersCalls) Cluster(ctx context.Context, id string) (clusters.ClusterView, error) {
	return send[clusters.ClusterView](ctx, c.caller, http.MethodGet, clusterPath(id), nil, nil)
}

// Moves lists the last moves of a cluster, newest first.
func (c clustersCalls) Moves(ctx context.Context, id string, limit int) ([]clusters.MoveLog, error) {
	return list[clusters.MoveLog](ctx, c.caller, clusterPath(id)+"/moves?limit="+strconv.Itoa(limit))
}

// Recording reads the recent observations of a cluster's balancer.
func (c clustersCalls) Recording(ctx context.Context, id string) (clusters.Recording, error) {
	return send[clusters.Recording](ctx, c.caller, http.MethodGet, clusterPath(id)+"/recording", nil, nil)
}

// ExplainPartition returns why a partition is where it is.
func (c clustersCalls) ExplainPartition(ctx context.Context, id string, partition int) (clusters.PartitionView, error) {
	return send[clusters.PartitionView](ctx, c.caller, http.MethodGet, clusterPath(id)+"/partitions/"+strconv.Itoa(partition), nil, nil)
}

// PullLever pulls or releases a lever of a cluster.
func (c clustersCalls) PullLever(ctx context.Context, id string, pull clusters.LeverPull, reason string) (clusters.Levers, error) {
	var levers clusters.Levers
	path := clusterPath(id) + "/levers/" + url.PathEscape(pull.Lever)
	if !pull.Release {
		change := wire.LeverChange{Worker: pull.Worker, Zone: pull.Zone, Until: pull.Until, Reason: reason}
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

// clusterPath returns the path of operators' calls for a cluster.
func clusterPath(id string) string { return "/admin/v1/clusters/" + url.PathEscape(id) }
