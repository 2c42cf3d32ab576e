package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// The document with the flags of nodes.
const (
	flagsKind = "nodes"
	flagsName = "flags"
)

// joinsWithin is how long after it has told its flags a node is not missed among those that are alive.
const joinsWithin = time.Minute

// toldFlags are those of a node.
type toldFlags struct {
	At    time.Time         `json:"at"`
	Flags map[string]string `json:"flags"`
}

// TellFlags lets the list of nodes show flags of a node, so that people see where nodes differ. It forgets those of nodes that are gone.
func (o *Runs) TellFlags(ctx context.Context, name string, flags map[string]string) error {
	for {
		d, all, err := o.flags(ctx)
		if err != nil {
			return err
		}
		nodes, err := o.Store.Ledger.Nodes(ctx)
		if err != nil {
			return fmt.Errorf("flags of nodes: %w", err)
		}
		alive := map[string]bool{}
		for _, n := range nodes {
			alive[n.Name] = alive[n.Name] || n.Alive
		}
		for other, told := range all {
			if !alive[other] && o.Now().Sub(told.At) > joinsWithin {
				delete(all, other)
			}
		}
		all[name] = toldFlags{o.Now().UTC().Truncate(time.Second), flags}
		write := store.DocumentWrite{Kind: flagsKind, Name: flagsName, Version: d.Version, Value: model.EncodeJSON(all)}
		_, err = o.Store.Documents.WriteDocuments(ctx, 0, []store.DocumentWrite{write}, nil)
		if errors.Is(err, store.ErrConflict) {
			continue // another node has told its own meanwhile
		}
		if err != nil {
			return fmt.Errorf("flags of nodes: %w", err)
		}
		return nil
	}
}

// flags reads what nodes have told, by their names.
func (o *Runs) flags(ctx context.Context) (d store.Document, all map[string]toldFlags, err error) {
	all = map[string]toldFlags{}
	d, err = o.Store.Documents.Document(ctx, flagsKind, flagsName)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return d, all, nil
	case err != nil:
		return d, nil, fmt.Errorf("flags of nodes: %w", err)
	}
	if err := json.Unmarshal(d.Value, &all); err != nil {
		return d, nil, fmt.Errorf("%w: flags of nodes: %w", store.ErrDamaged, err)
	}
	return d, all, nil
}
