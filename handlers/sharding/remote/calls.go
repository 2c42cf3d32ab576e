package remote

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/client"
	"procaas/handlers/sharding/transfers"
)

// ShardMaps lists the shard maps.
func ShardMaps(ctx context.Context, c *client.Client) ([]transfers.ShardMapView, error) {
	return client.List[transfers.ShardMapView](ctx, c, "/v1/shard-maps")
}

// ResolveShard returns where a key lives.
func ResolveShard(ctx context.Context, c *client.Client, shardMap string, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
	v := url.Values{"key": {q.Key}}
	set := func(name, value string, wanted bool) {
		if wanted {
			v.Set(name, value)
		}
	}
	set("mode", q.Mode, q.Mode != "")
	set("max-lag", q.MaxLag.String(), q.MaxLag > 0)
	set("min-lsn", strconv.FormatUint(q.MinLSN>>32, 16)+"/"+strconv.FormatUint(q.MinLSN&0xffffffff, 16), q.MinLSN > 0)
	set("dc", q.DC, q.DC != "")
	set("after-epoch", strconv.FormatInt(q.AfterEpoch, 10), q.AfterEpoch > 0)
	set("register", "false", q.Known)
	return client.Send[transfers.ShardAnswer](ctx, c, http.MethodGet, shardPath(shardMap, "/resolve?")+v.Encode(), nil, nil)
}

// Shards lists the shards of a map.
func Shards(ctx context.Context, c *client.Client, shardMap string) ([]transfers.ShardView, error) {
	return client.List[transfers.ShardView](ctx, c, shardPath(shardMap, "/shards"))
}

// SetShard changes the settings of a shard.
func SetShard(ctx context.Context, c *client.Client, shardMap, shard string, change ShardChangeRequest) (transfers.ShardView, error) {
	return client.Send[transfers.ShardView](ctx, c, http.MethodPut, "/admin"+shardPath(shardMap, "/shards/"+client.Segment(shard)), change,
		nil)
}

// RegroupShard splits or merges placements of a map.
func RegroupShard(ctx context.Context, c *client.Client, shardMap, verb string,
	ask ShardRegroupRequest,
) (transfers.ShardRegroup, error) {
	return client.Send[transfers.ShardRegroup](ctx, c, http.MethodPost, "/admin"+shardPath(shardMap, "/"+verb), ask, nil)
}

// CheckShards checks the tables of a shard, or of all shards for an empty id.
func CheckShards(ctx context.Context, c *client.Client, shardMap, shard string) (transfers.ShardCheck, error) {
	v := url.Values{}
	if shard != "" {
		v.Set("shard", shard)
	}
	return client.Send[transfers.ShardCheck](ctx, c, http.MethodGet, shardPath(shardMap, "/check?")+v.Encode(), nil, nil)
}

// EnrollShard prepares a shard.
func EnrollShard(ctx context.Context, c *client.Client, shardMap, shard string) (transfers.ShardEnrollment, error) {
	return client.Send[transfers.ShardEnrollment](ctx, c, http.MethodPost, "/admin"+shardPath(shardMap, "/shards/"+client.Segment(shard)+
		"/enroll"), nil, nil)
}

// RemoveShardMap removes what a former map has on its shards.
func RemoveShardMap(ctx context.Context, c *client.Client, shardMap string, ask ShardRemoveRequest) (transfers.ShardRemoval, error) {
	return client.Send[transfers.ShardRemoval](ctx, c, http.MethodPost, "/admin"+shardPath(shardMap, "/remove"), ask, nil)
}

// ShardTransfers lists the transfers of a map.
func ShardTransfers(ctx context.Context, c *client.Client, shardMap string) ([]transfers.ShardTransfer, error) {
	return client.List[transfers.ShardTransfer](ctx, c, shardPath(shardMap, "/transfers"))
}

// OrderShardTransfer sends an order to a transfer.
func OrderShardTransfer(ctx context.Context, c *client.Client, id string, order TransferOrderRequest) (transfers.ShardTransfer, error) {
	return client.Send[transfers.ShardTransfer](ctx, c, http.MethodPost, "/admin/v1/transfers/"+client.Segment(id)+"/order", order, nil)
}

// shardPath returns the path of a part of a shard map.
func shardPath(shardMap, rest string) string {
	return "/v1/shard-maps/" + client.Segment(shardMap) + rest
}
