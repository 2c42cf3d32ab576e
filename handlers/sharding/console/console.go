// Package console has the page of shard maps, with their shards, hosts and transfers.
package console

import (
	"context"
	_ "embed" // the template
	"net/http"

	"procaas/engine/api/ui"
	"procaas/engine/credentials"
	"procaas/handlers/sharding/transfers"
)

// Maps is what the page needs of shard maps.
type Maps interface {
	MapViews(ctx context.Context) ([]transfers.ShardMapView, error)
	Shards(ctx context.Context, shardMap string) ([]transfers.ShardView, error)
}

// Transfers is what the page needs of transfers between shards.
type Transfers interface {
	ShardTransfers(ctx context.Context, shardMap string) ([]transfers.ShardTransfer, error)
}

//go:embed shards.html
var text string

// Pages returns the pages. Maps are nil on a node that keeps none.
func Pages(maps Maps, moving Transfers) []ui.Page {
	return []ui.Page{{Pattern: "shards", Menu: "Shards", Template: text, Data: pages{maps, moving}.shards}}
}

type pages struct {
	maps   Maps
	moving Transfers
}

type shardsData struct {
	Kept bool // there may be shard maps here
	Maps []mapData
}

type mapData struct {
	Map    transfers.ShardMapView
	Shards []transfers.ShardView
	Moving []transfers.ShardTransfer // and those that have ended last
}

// shards shows the maps with their shards and hosts.
func (p pages) shards(r *http.Request, _ credentials.Grant) (title string, data any, err error) {
	const page = "Shards"
	if p.maps == nil {
		return page, shardsData{}, nil
	}
	d := shardsData{Kept: true}
	all, err := p.maps.MapViews(r.Context())
	if err != nil {
		return "", nil, err
	}
	for _, m := range all {
		one := mapData{Map: m}
		if one.Shards, err = p.maps.Shards(r.Context(), m.ID); err != nil {
			return "", nil, err
		}
		if one.Moving, err = p.moving.ShardTransfers(r.Context(), m.ID); err != nil {
			return "", nil, err
		}
		d.Maps = append(d.Maps, one)
	}
	return page, d, nil
}
