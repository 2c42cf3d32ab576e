package remote

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/client"
	"procaas/handlers/balancer/clusters"
)

// Clusters lists the clusters of a server.
func Clusters(ctx context.Context, c *client.Client) ([]clusters.ClusterView, error) {
	return client.List[clusters.ClusterView](ctx, c, "/admin/v1/clusters")
}

// Cluster reads one cluster.
func Cluster(ctx context.Context, c *client.Client, id string) (clusters.ClusterView, error) {
	return client.Send[clusters.ClusterView](ctx, c, http.MethodGet, clusterPath(id), nil, nil)
}

// Moves lists the last moves of a cluster, newest first.
func Moves(ctx context.Context, c *client.Client, id string, limit int) ([]clusters.MoveLog, error) {
	return client.List[clusters.MoveLog](ctx, c, clusterPath(id)+"/moves?limit="+strconv.Itoa(limit))
}

// Recording reads the recent observations of a cluster's balancer.
func Recording(ctx context.Context, c *client.Client, id string) (clusters.Recording, error) {
	return client.Send[clusters.Recording](ctx, c, http.MethodGet, clusterPath(id)+"/recording", nil, nil)
}

// ExplainPartition returns why a partition is where it is.
func ExplainPartition(ctx context.Context, c *client.Client, id string, partition int) (clusters.PartitionView, error) {
	return client.Send[clusters.PartitionView](ctx, c, http.MethodGet, clusterPath(id)+"/partitions/"+strconv.Itoa(partition), nil, nil)
}

// PullLever pulls or releases a lever of a cluster.
func PullLever(ctx context.Context, c *client.Client, id string, pull clusters.LeverPull, reason string) (clusters.Levers, error) {
	path := clusterPath(id) + "/levers/" + client.Segment(pull.Lever)
	if !pull.Release {
		change := LeverChange{Worker: pull.Worker, Zone: pull.Zone, Until: pull.Until, Reason: reason}
		if pull.Partition >= 0 {
			change.Partition = &pull.Partition
		}
		return client.Send[clusters.Levers](ctx, c, http.MethodPut, path, change, nil)
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
	return client.Send[clusters.Levers](ctx, c, http.MethodDelete, path+"?"+q.Encode(), nil, nil)
}

// clusterPath returns the path of operators' calls for a cluster.
func clusterPath(id string) string { return "/admin/v1/clusters/" + client.Segment(id) }
