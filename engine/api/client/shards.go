package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"procaas/engine/api/wire"
	"procaas/engine/transfers"
)

// shardsCalls are the calls about shard maps.
type shardsCalls struct{ *caller }

// ShardMaps lists the shard maps.
func (c shardsCalls) ShardMaps(ctx context.Context) ([]transfers.ShardMapView, error) {
	return list[transfers.ShardMapView](ctx, c.caller, "/v1/shard-maps")
}

// ResolveShard returns where a key lives.
func (c shardsCalls) ResolveShard(ctx context.Context, shardMap string, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
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
	return send[transfers.ShardAnswer](ctx, c.caller, http.MethodGet, shardPath(shardMap, "/resolve?")+v.Encode(), nil, nil)
}

// Shards lists the shards of a map.
func (c shardsCalls) Shards(ctx context.Context, shardMap string) ([]transfers.ShardView, error) {
	return list[transfers.ShardView](ctx, c.caller, shardPath(shardMap, "/shards"))
}

// SetShard changes the settings of a shard.
func (c shardsCalls) SetShard(ctx context.Context, shardMap, shard string, change wire.ShardChangeRequest) (transfers.ShardView, error) {
	return send[transfers.ShardView](ctx, c.caller, http.MethodPut, "/admin"+shardPath(shardMap, "/shards/"+url.PathEscape(shard)), change,
		nil)
}

// RegroupShard splits or merges placements of a map.
func (c shardsCalls) RegroupShard(ctx context.Context, shardMap, verb string,
	ask wire.ShardRegroupRequest,
) (transfers.ShardRegroup, error) {
	return send[transfers.ShardRegroup](ctx, c.caller, http.MethodPost, "/admin"+shardPath(shardMap, "/"+verb), ask, nil)
}

// CheckShards checks the tables of a shard, or of all shards for an empty id.
func (c shardsCalls) CheckShards(ctx context.Context, shardMap, shard string) (transfers.ShardCheck, error) {
	v := url.Values{}
	if shard != "" {
		v.Set("shard", shard)
	}
	return send[transfers.ShardCheck](ctx, c.caller, http.MethodGet, shardPath(shardMap, "/check?")+v.Encode(), nil, nil)
}

// EnrollShard prepares a shard.
func (c shardsCalls) EnrollShard(ctx context.Context, shardMap, shard string) (transfers.ShardEnrollment, error) {
	return send[transfers.ShardEnrollment](ctx, c.caller, http.MethodPost, "/admin"+shardPath(shardMap, "/shards/"+url.PathEscape(shard)+
		"/enroll"), nil, nil)
}

// RemoveShardMap removes what a former map has on its shards.
func (c shardsCalls) RemoveShardMap(ctx context.Context, shardMap string, ask wire.ShardRemoveRequest) (transfers.ShardRemoval, error) {
	return send[transfers.ShardRemoval](ctx, c.caller, http.MethodPost, "/admin"+shardPath(shardMap, "/remove"), ask, nil)
}

// ShardTransfers lists the transfers of a map.
func (c shardsCalls) ShardTransfers(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error) {
	return list[transfers.ShardTransfer](ctx, c.caller, shardPath(shardMap, "/transfers"))
}

// OrderShardTransfer sends an order to a transfer.
func (c shardsCalls) OrderShardTransfer(ctx context.Context, id string, order wire.TransferOrderRequest) (transfers.ShardTransfer, error) {
	return send[transfers.ShardTransfer](ctx, c.caller, http.MethodPost, "/admin/v1/transfers/"+url.PathEscape(id)+"/order", order, nil)
}

// shardPath returns the path of a part of a shard map.
func shardPath(shardMap, rest string) string {
	return "/v1/shard-maps/" + url.PathEscape(shardMap) + rest
}
