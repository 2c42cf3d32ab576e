package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Whatever the store fails at, before or after it has done what it was asked,
// no result may be lost, repeated or reordered.
func TestStoreThatFailsAtAnythingLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { failAtAnything(t, seed) })
		})
	}
}

func failAtAnything(t *testing.T, seed uint64) {
	const keys, events = 12, 5
	r := newRig(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	calm := time.Now().Add(5 * time.Second)
	fault := func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(calm) && random.IntN(4) == 0 {
			return enginetest.ErrInjected
		}
		return nil
	}
	e := r.engine((&enginetest.Faulty{Store: r.store, Before: fault, After: fault}).Ports(), three,
		func(o *engine.Options) { o.MaxInFlight = 8 })
	r.run(e)

	var runs sync.Map
	var senders sync.WaitGroup
	for k := range keys {
		senders.Go(func() {
			for i := range events {
				ev := event("work", fmt.Sprint(k))
				ev.ID = fmt.Sprintf("%d-%d", k, i)
				for { // a sender that is not answered sends again, with the same id
					out, err := e.Submit(context.Background(), []intake.Submission{{Event: ev}})
					if err == nil {
						runs.Store(out[0].Receipt.Run, true)
						break
					}
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	senders.Wait()
	count := 0
	for run := range runs.Range {
		r.settle(e, run.(string), model.Succeeded)
		count++
	}
	if count != keys*events {
		t.Errorf("want %d runs, have %d", keys*events, count)
	}
	order := map[string][]string{}
	for _, c := range r.calls.Calls() {
		order[c.Key] = append(order[c.Key], c.Event.ID+" "+c.Path)
	}
	for k := range keys {
		var want []string
		for i := range events {
			for _, path := range []string{"work/a/one", "work/b/two", "work/c/three"} {
				want = append(want, fmt.Sprintf("%d-%d %s", k, i, path))
			}
		}
		if have := order[fmt.Sprint(k)]; !slices.Equal(have, want) {
			t.Errorf("key %d: want %v, have %v", k, want, have)
		}
	}
}

// The answer to a Claim or an Accept may be lost: then the node owns runs that it
// does not know, and nobody else may take them.
func TestRunsWhoseAnswerWasLostAreFound(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"accept", "claim"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				lost := false
				store := &enginetest.Faulty{Store: r.store, After: func(asked string) error {
					if d, _ := r.store.Inbox.Depth(context.Background()); asked != op || lost || d.Waiting != 0 {
						return nil
					}
					lost = true
					return enginetest.ErrInjected
				}}
				e := r.engine(store.Ports(), three)
				if op == "claim" {
					ev := event("work", "k")
					ev.ID = "e"
					r.submit(e, ev)
				}
				r.run(e)
				pass(3 * time.Second)
				ev := event("work", "k")
				ev.ID = "e"
				if _, err := e.Submit(context.Background(), []intake.Submission{{Event: ev}}); op == "accept" && err == nil {
					t.Error("want the lost answer told")
				}
				began := time.Now()
				r.settle(e, r.submit(e, ev), model.Succeeded)
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("want the run found within a few beats, it took %s", took)
				}
				if !lost {
					t.Error("the test has lost no answer")
				}
			})
		})
	}
}

// The same when nobody noticed that an answer was lost: a transaction that came
// late, for example.
func TestRunsThatTheNodeOwnsUnknowinglyAreFound(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(three)
		nodes, err := r.store.Ledger.Nodes(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ev := event("work", "k")
		ev.ID = "e"
		in := model.Intake{ID: "late", Event: ev, Flow: "order", Key: "k", Ordered: true, Pipeline: "work", Own: true}
		if _, err := r.store.Inbox.Accept(context.Background(), nodes[0].Node, []model.Intake{in}); err != nil {
			t.Fatal(err)
		}
		pass(4 * time.Second)
		r.settle(e, "late", model.Succeeded)
	})
}

// A commit whose answer was lost is written, and the run goes on at once.
func TestLostAnswerOfACommitIsNoSetback(t *testing.T) {
	t.Parallel()
	for nth := range 4 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			commits := 0
			e := r.engine((&enginetest.Faulty{Store: r.store, After: func(op string) error {
				if op != "commit" {
					return nil
				}
				if commits++; commits == nth+1 {
					return enginetest.ErrInjected
				}
				return nil
			}}).Ports(), three)
			r.run(e)
			synctest.Wait()
			began := time.Now()
			r.settle(e, r.submit(e, event("work", "k")), model.Succeeded)
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("commit %d: want the run to go on at once, it took %s", nth, took)
			}
			synctest.Wait()
			pass(time.Second)
			r.want("work/a/one", "work/b/two", "work/c/three")
			if log := r.log.String(); strings.Contains(log, "moved on") {
				t.Errorf("commit %d: want it found written, have %s", nth, log)
			}
		})
	}
}

// A change that the store cannot take must not hold up the others.
func TestChangeThatTheStoreRefusesFailsItsOwnRunOnly(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		db := r.store
		db.Ledger = &picky{db.Ledger, db.Runs}
		e, _ := r.startOn(db, three)
		var good []string
		for i := range 40 {
			good = append(good, r.submit(e, event("work", fmt.Sprint(i))))
		}
		bad := r.submit(e, event("work", "poison"))
		for i := range 40 { // others are written meanwhile, so it is not the store
			good = append(good, r.submit(e, event("work", fmt.Sprint("later", i))))
			pass(100 * time.Millisecond)
		}
		for _, run := range good {
			r.settle(e, run, model.Succeeded)
		}
		if v := r.settle(e, bad, model.Failed); !strings.Contains(v.Error, "too much") {
			t.Errorf("want the store's reason, have %q", v.Error)
		}
	})
}

// A picky ledger refuses the checkpoints of one run that has begun its last stage.
type picky struct {
	store.Ledger
	runs store.Runs
}

func (p *picky) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	time.Sleep(5 * time.Millisecond) // so that changes gather
	for _, c := range changes {
		r, err := p.runs.Run(ctx, c.Run)
		if err == nil && r.Key == "poison" && c.Status != model.Failed && r.Version > 1 {
			return nil, fmt.Errorf("%w: too much", store.ErrRefused)
		}
	}
	return p.Ledger.Commit(ctx, node, changes)
}

// The beats of a node that is leaving may find it gone before it has the answer to
// its goodbye. It has left all the same.
func TestNodeLeavesWellThoughABeatFindsItGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		lost := false
		e := r.engine((&enginetest.Faulty{Store: r.store, After: func(op string) error {
			if op != "leave" || lost {
				return nil
			}
			lost = true
			time.Sleep(2 * time.Second) // some beats
			return enginetest.ErrInjected
		}}).Ports(), three)
		stop := r.run(e)
		synctest.Wait()
		if err := stop(); err != nil || !lost {
			t.Errorf("have %v, want a node that has left well", err)
		}
	})
}
