// Package addon plugs shard maps and transfers into procaas.
package addon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/addon"
	"procaas/engine/api"
	"procaas/engine/api/ui"
	"procaas/engine/definitions"
	"procaas/engine/postgres"
	"procaas/handlers/sharding"
	shardingapi "procaas/handlers/sharding/api"
	"procaas/handlers/sharding/console"
	"procaas/handlers/sharding/language"
	"procaas/handlers/sharding/shardmap"
	"procaas/handlers/sharding/transfers"
)

// New returns the add-on.
func New() addon.Addon {
	return addon.Addon{
		Name: "sharding", Sections: []tree.Section{language.Section()}, Compare: compareShardMaps, Types: sharding.Types,
		Problems: shardingapi.Problems(), New: newProcess, Demo: demoShards,
		Commands: func(addon.Tools) []addon.Command { return []addon.Command{{Command: shardCommand()}} },
	}
}

// A process is the shard maps of one process.
type process struct {
	maps   *shardmap.Service // nil before open, and if the store is not PostgreSQL
	moving *transfers.Transfers
}

func newProcess() *addon.Process {
	p := &process{}
	return &addon.Process{Open: p.open, Calls: p.calls, Pages: p.pages, Close: p.close}
}

// open opens the shard maps of a node, in the database of its store. It must be PostgreSQL.
func (p *process) open(ctx context.Context, h *addon.Host) (*addon.Part, error) {
	p.moving = transfers.NewTransfers(h.Store.Documents, h.Bundle)
	declared := language.ShardMapsOf(h.Bundle())
	if !h.Postgres {
		if len(declared) > 0 {
			h.Log.Warn("shard maps are not kept: they need a store in PostgreSQL", "maps", len(declared))
		}
		return &addon.Part{}, nil
	}
	const pause = 5 * time.Second // someone waits for the registration of a key
	maps, err := shardmap.Open(ctx, shardmap.Options{
		DSN: h.DSN, Maps: declared, Secret: h.Secrets, Targets: h.Targets, HTTP: h.HTTP("registration", pause), Log: h.Log,
		Audit:     postgres.WriteAudit,
		Transfers: p.moving.ShardTransfers,
	})
	if err != nil {
		return nil, err
	}
	p.maps = maps
	return &addon.Part{
		Types:  sharding.Bind(sharding.Types(), maps, sharding.BindOptions{}),
		Accept: p.accept,
		Adopt:  p.adopt,
	}, nil
}

func (p *process) calls(*engine.Engine) api.Group {
	var maps transfers.ShardMaps // nil if this node keeps none
	if p.maps != nil {
		maps = p.maps
	}
	return shardingapi.Calls(maps, p.moving)
}

func (p *process) pages(*engine.Engine) []ui.Page {
	if p.maps == nil {
		return console.Pages(nil, p.moving)
	}
	return console.Pages(p.maps, p.moving)
}

// accept refuses shard maps that cannot be taken over, before they become current.
func (p *process) accept(ctx context.Context, b *tree.Bundle) error {
	err := p.maps.Check(ctx, language.ShardMapsOf(b))
	if _, ok := errors.AsType[*shardmap.MapError](err); ok {
		return &definitions.LoadError{Err: err}
	}
	return err
}

// adopt takes over the shard maps of a definition.
func (p *process) adopt(ctx context.Context, b *tree.Bundle) error {
	if err := p.maps.Apply(ctx, language.ShardMapsOf(b)); err != nil {
		return fmt.Errorf("the new shard maps are not taken over yet, those before stay; it is tried again each second: %w", err)
	}
	return nil
}

// close closes the connections to shards, if there are any.
func (p *process) close() error {
	if p.maps != nil {
		p.maps.Close()
	}
	return nil
}
