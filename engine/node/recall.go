package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A document of the store has the in-flight limits that nodes have found for services. So a node
// that starts after a crash need not find them again while the backlog waits.

const (
	limitsGap   = 100 * time.Millisecond // shortest time between two writes
	limitsKind  = "services"
	limitsName  = "limits"
	limitsMoved = 1.2 // a limit is written if it has changed by this factor
)

// recallLimits reads the stored limits.
func (d *Driver) recallLimits(ctx context.Context) error {
	doc, err := d.Store.Documents.Document(ctx, limitsKind, limitsName)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	limits := map[string]int{}
	if err := json.Unmarshal(doc.Value, &limits); err != nil {
		return fmt.Errorf("limits of services: %w", err)
	}
	d.Guard.Recall(limits)
	d.written = limits
	return nil
}

// keepLimits stores the node's limits when they change, until the membership ends.
func (n *node) keepLimits() {
	for {
		kept := n.writeLimits()
		if !clock.Pause(n.ctx, limitsGap) {
			return
		}
		if !kept {
			continue
		}
		select {
		case <-n.d.Guard.Moved():
		case <-n.ctx.Done():
			return
		}
	}
}

// writeLimits stores the limits that have changed. It returns false if they could not be written.
func (n *node) writeLimits() bool {
	limits, moved := maps.Clone(n.d.written), false
	if limits == nil {
		limits = map[string]int{}
	}
	for name, limit := range n.d.Guard.Limits() {
		before := float64(limits[name])
		if now := float64(limit); now > limitsMoved*before || before > limitsMoved*now {
			limits[name], moved = limit, true
		}
	}
	if !moved {
		return true
	}
	ctx, cancel := context.WithTimeout(n.ctx, clock.StoreTimeout)
	defer cancel()
	_, err := n.d.Store.Documents.WriteDocuments(ctx, n.number, []store.DocumentWrite{
		{Kind: limitsKind, Name: limitsName, Version: store.AnyVersion, Value: model.EncodeJSON(limits)},
	}, nil)
	if err == nil {
		n.d.written = limits
	} else if n.ctx.Err() == nil {
		n.log.Debug("limits of services cannot be kept, trying again", "error", err)
	}
	return err == nil
}
