package console_test

import (
	"context"
	"net/http"
	"testing"

	"procaas/engine/credentials"
	"procaas/engine/enginetest/pages"
	"procaas/handlers/sharding/console"
	"procaas/handlers/sharding/transfers"
)

type shards struct{}

func (shards) MapViews(context.Context) ([]transfers.ShardMapView, error) {
	return []transfers.ShardMapView{{ID: "accounts", Key: []string{"uid"}, Strategy: "directory", Shards: 1}}, nil
}

func (shards) Shards(_ context.Context, m string) ([]transfers.ShardView, error) {
	return []transfers.ShardView{{
		Map: m, ID: "s-1", Draining: "<b>", Capacity: 10 << 30, Used: 9 << 30, Usage: 0.9, Problem: "no master",
		Hosts: []transfers.ShardHostView{
			{Address: "h:5432", Role: "replica", Alive: true, LagMS: 17},
			{Address: "g:5432", Error: "refused"},
		},
	}}, nil
}

type moving struct{}

func (moving) ShardTransfers(_ context.Context, m string) ([]transfers.ShardTransfer, error) {
	return []transfers.ShardTransfer{{
		Map: m, Key: "u-7", Source: "s-1", Target: "s-2", State: transfers.TransferRunning, Step: "copy", Rows: 42,
		Total: 84, Percent: 50, Lag: 2048, Rollback: "possible",
	}}, nil
}

func TestShardsHaveTheirPage(t *testing.T) {
	t.Parallel()
	pages.Open(t, pages.Options(credentials.Grant{}, console.Pages(shards{}, moving{})...), "/console/shards", http.StatusOK,
		`aria-current="page">Shards`, "accounts", "90 % of 10 GiB", "17 ms behind", "refused", "no master", "draining",
		"u-7", "42 of about 84 rows", `width="50"`, "2 KiB", "can be rolled back")
	pages.Open(t, pages.Options(credentials.Grant{}, console.Pages(nil, moving{})...), "/console/shards", http.StatusOK, "has no shard maps")
}
