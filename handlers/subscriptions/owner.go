package subscriptions

import (
	"context"
	"errors"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// One node owns a subscription, and reads it. Its document in the store has the number of that node. The store keeps which nodes are
// alive, and refuses writes of others. So the owner renews nothing, and the subscription of a dead node is free when that node is out.
// Two owners for a moment do no harm, see [broker.Source].

const docOwner = "subscription-owner"

// An ownership is the value of a document.
type ownership struct {
	Node string `json:"node"` // for people; empty if the owner has let go
}

// claim reports whether this node owns the subscription. It takes one that nobody has.
func (r *reader) claim(ctx context.Context) (bool, error) {
	id, me := r.sub.Load().ID, r.m.Engine.NodeNumber()
	if me == 0 {
		return false, nil
	}
	if r.isShared() {
		r.seen.own(true)
		return true, nil
	}
	d, err := r.m.Store.Documents.Document(ctx, docOwner, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	free := err != nil || d.Node == 0 // its owner has let go
	if d.Node == me {
		r.seen.own(true)
		return true, nil
	}
	if !free {
		nodes, err := r.m.Store.Ledger.Nodes(ctx)
		if err != nil {
			return false, err
		}
		free = !slices.ContainsFunc(nodes, func(n store.NodeInfo) bool { return n.Node == d.Node && n.Alive })
	}
	if !free {
		r.seen.own(false)
		return false, nil
	}
	_, err = r.m.Store.Documents.WriteDocuments(ctx, me, []store.DocumentWrite{{
		Kind: docOwner, Name: id, Version: d.Version, Value: model.EncodeJSON(ownership{r.m.Name}),
	}}, nil)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrFenced) {
		return false, nil
	}
	r.seen.own(err == nil)
	return err == nil, err
}

// isShared reports whether each node reads its part of the subscription.
func (r *reader) isShared() bool { return r.m.Brokers[r.sub.Load().Broker].Shared }

// owns reports whether this node still owns the subscription.
func (r *reader) owns(ctx context.Context) (bool, error) {
	if r.isShared() {
		return true, nil
	}
	d, err := r.m.Store.Documents.Document(ctx, docOwner, r.sub.Load().ID)
	return d.Node == r.m.Engine.NodeNumber(), err
}

// release lets others read the subscription at once. If the store does not answer, they wait until this node is out.
func (r *reader) release(ctx context.Context) {
	if !r.seen.own(false) || r.isShared() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellEvery)
	defer cancel()
	id := r.sub.Load().ID
	d, err := r.m.Store.Documents.Document(ctx, docOwner, id)
	if err == nil && d.Node == r.m.Engine.NodeNumber() {
		_, err = r.m.Store.Documents.WriteDocuments(ctx, 0, []store.DocumentWrite{{
			Kind: docOwner, Name: id, Version: d.Version, Value: model.EncodeJSON(ownership{}),
		}}, nil)
	}
	if err != nil && !errors.Is(err, store.ErrConflict) {
		r.m.Log.Warn("a subscription is not released, others read it when this node is out", "subscription", id, "error", err)
	}
}
