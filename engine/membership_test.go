package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/intake"
	"procaas/engine/memory"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A turncoat is a store that becomes another one.
type turncoat struct {
	store.Store
	other  store.Store
	turned atomic.Bool
	less   atomic.Int64 // beats that it has forgotten
	fences atomic.Bool  // it takes the node for dead
}

func (s *turncoat) now() store.Store {
	if s.turned.Load() {
		return s.other
	}
	return s.Store
}

// ports returns the store that turns.
func (s *turncoat) ports() store.Store {
	db := s.Store
	db.Ledger, db.Inbox = turnedLedger{db.Ledger, s}, turnedInbox{db.Inbox, s}
	return db
}

// The ports that turn.
type (
	turnedLedger struct {
		store.Ledger
		*turncoat
	}
	turnedInbox struct {
		store.Inbox
		*turncoat
	}
)

func (s turnedLedger) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	return s.now().Ledger.Join(ctx, name, lease)
}

func (s turnedLedger) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	b, err := s.now().Ledger.Beat(ctx, node, lease, bundle)
	b.Beats -= s.less.Load()
	if s.fences.Load() && err == nil {
		return store.Beat{Beats: b.Beats}, store.ErrFenced
	}
	return b, err
}

func (s turnedLedger) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	return s.now().Ledger.Claim(ctx, node, limit, bundle)
}

func (s turnedInbox) Accept(ctx context.Context, node int64, runs []model.Intake) ([]store.Accepted, error) {
	return s.now().Inbox.Accept(ctx, node, runs)
}

func (s turnedLedger) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	nodes, err := s.now().Ledger.Nodes(ctx)
	for i := range nodes {
		nodes[i].Beats -= s.less.Load()
	}
	return nodes, err
}

// A store that shows less than it has answered is refused until it is itself again.
func TestStoreThatWasSetBackIsRefused(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]func(*turncoat, bool){
		"the node is unknown": func(s *turncoat, away bool) { s.turned.Store(away) },
		"beats are missing": func(s *turncoat, away bool) {
			s.less.Store(0)
			if away {
				s.less.Store(3)
			}
		},
		"beats are missing, and the node is fenced": func(s *turncoat, away bool) {
			s.less.Store(0)
			if away {
				s.less.Store(3)
			}
			s.fences.Store(away)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { setBack(t, turn) }) })
	}
}

func setBack(t *testing.T, turn func(*turncoat, bool)) {
	r := newRig(t)
	db := &turncoat{Store: r.store, other: memory.New(nil).Ports()}
	e := r.engine(db.ports(), three)
	r.run(e)
	submit := func() (intake.Submitted, error) {
		out, err := e.Submit(context.Background(), []intake.Submission{{Event: event("work", "k")}})
		if err != nil {
			return intake.Submitted{}, err
		}
		return out[0], nil
	}
	pass(10 * time.Second)
	first, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	r.settle(e, first.Receipt.Run, model.Succeeded)

	turn(db, true)
	pass(10 * time.Second)
	if err := e.Healthy(t.Context()); !errors.Is(err, store.ErrLost) {
		t.Errorf("want the node not ready, since its store was set back, have %v", err)
	}
	if _, err := submit(); !errors.Is(err, store.ErrLost) {
		t.Errorf("want no event taken in, have %v", err)
	}
	if nodes, _ := db.other.Ledger.Nodes(t.Context()); len(nodes) > 0 {
		t.Errorf("want nobody to join the store that was set back, have %+v", nodes)
	}

	turn(db, false)
	pass(10 * time.Second)
	if err := e.Healthy(t.Context()); err != nil {
		t.Errorf("want the node ready when the store is itself again, have %v", err)
	}
	again, err := submit()
	if err != nil {
		t.Fatal(err)
	}
	r.settle(e, again.Receipt.Run, model.Succeeded)
}
