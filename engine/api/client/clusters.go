package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/wire"
	"procaas/engine/clusters"
)

// Clusters lists the clusters of a server.
func (c *Client) Clusters(ctx context.Context) ([]clusters.ClusterView, error) {
	return List[clusters.ClusterView](ctx, c, "/admin/v1/clusters")
}

// Cluster reads one cluster.
func (c *Client) Cluster(ctx context.Context, id string) (clusters.ClusterView, error) {
	return Send[clusters.ClusterView](ctx, c, http.MethodGet, clusterPath(id), nil, nil)
}

// Moves lists the last moves of a cluster, newest first.
func (c *Client) Moves(ctx context.Context, id string, limit int) ([]clusters.MoveLog, error) {
	return List[clusters.MoveLog](ctx, c, clusterPath(id)+"/moves?limit="+strconv.Itoa(limit))
}

// Recording reads the recent observations of a cluster's balancer.
func (c *Client) Recording(ctx context.Context, id string) (clusters.Recording, error) {
	return Send[clusters.Recording](ctx, c, http.MethodGet, clusterPath(id)+"/recording", nil, nil)
}

// ExplainPartition returns why a partition is where it is.
func (c *Client) ExplainPartition(ctx context.Context, id string, partition int) (clusters.PartitionView, error) {
	return Send[clusters.PartitionView](ctx, c, http.MethodGet, clusterPath(id)+"/partitions/"+strconv.Itoa(partition), nil, nil)
}

// PullLever pulls or releases a lever of a cluster.
func (c *Client) PullLever(ctx context.Context, id string, pull clusters.LeverPull, reason string) (clusters.Levers, error) {
	path := clusterPath(id) + "/levers/" + url.PathEscape(pull.Lever)
	if !pull.Release {
		change := wire.LeverChange{Worker: pull.Worker, Zone: pull.Zone, Until: pull.Until, Reason: reason}
		if pull.Partition >= 0 {
			change.Partition = &pull.Partition
		}
		return Send[clusters.Levers](ctx, c, http.MethodPut, path, change, nil)
	}
	q := queryOf(map[string]string{"worker": pull.Worker, "zone": pull.Zone, "reason": reason})
	if pull.Partition >= 0 {
		q.Set("partition", strconv.Itoa(pull.Partition))
	}
	return Send[clusters.Levers](ctx, c, http.MethodDelete, path+"?"+q.Encode(), nil, nil)
}

// clusterPath returns the path of operators' calls for a cluster.
func clusterPath(id string) string { return "/admin/v1/clusters/" + url.PathEscape(id) }
