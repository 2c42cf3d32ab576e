package conformance

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"procaas/engine/model"
	"procaas/engine/store"
)

var raceCases = []storeCase{
	{"32 repetitions at once give one run", func(p *probe) {
		for round := range 5 {
			in := p.event("k", unordered)
			results := make([]store.Accepted, 32)
			p.together(len(results), func(i int) error {
				mine := in
				mine.ID = fmt.Sprintf("%s-%d", in.ID, i)
				r, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{p.event("k", unordered), mine})
				if err == nil {
					results[i] = r[1]
				}
				return err
			})
			fresh := 0
			for _, r := range results {
				if r.Run != results[0].Run || r.Err != nil {
					p.Fatalf("round %d: want one run for all, have %+v", round, results)
				}
				if !r.Duplicate {
					fresh++
				}
			}
			p.equal("accepted as new", fresh, 1)
		}
	}},
	{"batches over the same keys and ids do not stand in each other's way", func(p *probe) {
		p.together(16, func(i int) error {
			for round := range 4 {
				var batch []model.Intake
				for k := range 12 {
					key := (k*7 + i*5) % 12 // another order in each
					in := p.event(fmt.Sprintf("k%d", key))
					if key%2 == 0 {
						in.Event.ID, in.Hash = fmt.Sprintf("e-%d-%d", round, key), "same"
					}
					batch = append(batch, in)
				}
				if _, err := p.Inbox.Accept(p.Context(), 0, batch); err != nil {
					return err
				}
			}
			return nil
		})
		p.wantRuns(16*4*6 + 4*6)
	}},
	{"runs of a key follow each other in their times, too", func(p *probe) {
		node := p.join()
		id := p.accept(p.event("k"))[0]
		held := node.claimOne(id)
		for round := range 30 {
			in := p.event("k", owned)
			var given *store.Claimed
			p.together(3, func(i int) error {
				switch i {
				case 0:
					return node.tryCommit(change(held, model.Succeeded))
				case 1: // takes the locks of the key, too
					_, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{p.event("k2"), p.event("k3")})
					return err
				}
				out, err := p.Inbox.Accept(p.Context(), node.id, []model.Intake{in})
				if err == nil {
					given = out[0].Claimed
				}
				return err
			})
			for given == nil {
				for _, c := range node.claim(10) {
					if c.ID == in.ID {
						given = &c
					}
				}
			}
			before, after := p.run(held.ID), p.run(in.ID)
			if after.Started.Before(before.Ended) || after.Started.Before(after.Accepted) || after.Accepted.Before(before.Accepted) {
				p.Fatalf("round %d: run %s was accepted %s, started %s and ended %s; the next one was accepted %s and started %s",
					round, held.ID, before.Accepted, before.Started, before.Ended, after.Accepted, after.Started)
			}
			held = *given
		}
	}},
	{"no run is given to two nodes", func(p *probe) {
		const runs = 300
		for range runs {
			p.accept(p.event("k", unordered))
		}
		var mu sync.Mutex
		seen := map[string]int64{}
		p.together(6, func(int) error {
			node, err := p.Ledger.Join(p.Context(), "claimer", lease)
			if err != nil {
				return err
			}
			for {
				got, err := p.Ledger.Claim(p.Context(), node, 7, "")
				if err != nil {
					return err
				}
				mu.Lock()
				for _, c := range got {
					if other := seen[c.ID]; other != 0 {
						p.Errorf("run %s given to node %d and node %d", c.ID, other, node)
					}
					seen[c.ID] = node
				}
				done := len(seen) >= runs
				mu.Unlock()
				if done {
					return nil
				}
			}
		})
	}},
	{"of an end and an acceptance at once the key goes on", func(p *probe) {
		node := p.join()
		for round := range 60 {
			key := fmt.Sprintf("k%d", round)
			c := node.claimOne(p.accept(p.event(key))[0])
			next := p.event(key)
			p.together(2, func(i int) error {
				if i == 0 {
					_, err := p.Inbox.Accept(p.Context(), 0, []model.Intake{next})
					return err
				}
				return node.tryCommit(change(c, model.Succeeded))
			})
			node.finish(node.claimOne(next.ID))
		}
	}},
	{"of an end and a cancel at once one wins", func(p *probe) {
		node := p.join()
		for round := range 40 {
			key := fmt.Sprintf("k%d", round)
			ids := p.accept(p.event(key), p.event(key))
			c := node.claimOne(ids[0])
			p.together(2, func(i int) error {
				if i == 0 {
					if err := p.Runs.Cancel(p.Context(), c.ID, store.Actor{Name: "ann", Reason: "x"}, store.Tell{}); !errors.Is(err, store.ErrConflict) {
						return err
					}
					return nil
				}
				return node.tryCommit(change(c, model.Succeeded))
			})
			p.wantStatus(ids[0], model.Succeeded)
			node.finish(node.claimOne(ids[1]))
		}
	}},
	{"keys stay in order under load", func(p *probe) { p.load(8, 40) }},
}

// together runs n functions at once and fails at their first error.
func (p *probe) together(n int, do func(i int) error) {
	p.Helper()
	var g errgroup.Group
	start := make(chan struct{})
	for i := range n {
		g.Go(func() error {
			<-start
			return do(i)
		})
	}
	close(start)
	if err := g.Wait(); err != nil {
		p.Fatal(err)
	}
}

// load makes producers and nodes work on few keys at once. Now and then a node leaves and releases
// its runs. The runs of a key must run one at a time, in the order in which its producer had them
// accepted.
func (p *probe) load(keys, perKey int) {
	w := &watch{busy: map[string]string{}, done: map[string][]string{}}
	var g errgroup.Group
	want := make([][]string, keys)
	for k := range keys {
		g.Go(func() error {
			for len(want[k]) < perKey {
				var batch []model.Intake
				for range 1 + len(want[k])%3 {
					in := p.event(fmt.Sprintf("k%d", k))
					batch = append(batch, in)
					want[k] = append(want[k], in.ID)
				}
				if _, err := p.Inbox.Accept(p.Context(), 0, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	stop := make(chan struct{})
	for range 3 {
		g.Go(func() error { return p.work(w, stop) })
	}
	p.eventually("the end of all runs", func() bool {
		n, err := w.count()
		if err != nil {
			p.Error(err)
		}
		return err != nil || n >= keys*perKey
	})
	close(stop)
	if err := g.Wait(); err != nil {
		p.Fatal(err)
	}
	p.drain(w)
	for k := range want {
		p.equal(fmt.Sprintf("key %d", k), w.done[fmt.Sprintf("k%d", k)], want[k])
	}
}

// work claims and ends runs as a node until stop is closed. Every few rounds it leaves with its
// runs, and joins again.
func (p *probe) work(w *watch, stop <-chan struct{}) error {
	for round := 0; ; {
		id, err := p.Ledger.Join(p.Context(), "worker", lease)
		if err != nil {
			return err
		}
		node := &member{p, id}
		for leaves := false; !leaves; round++ {
			select {
			case <-stop:
				return p.Ledger.Leave(p.Context(), id, nil)
			default:
			}
			runs, err := p.Ledger.Claim(p.Context(), id, 4, "")
			if err != nil {
				return err
			}
			leaves = round%7 == 6
			if leaves {
				continue
			}
			if err := node.pass(w, runs); err != nil {
				return err
			}
		}
		if err := p.Ledger.Leave(p.Context(), id, nil); err != nil {
			return err
		}
	}
}

// pass takes claimed runs through a checkpoint to their end.
func (n *member) pass(w *watch, runs []store.Claimed) error {
	var steps, ends []model.Change
	for _, c := range runs {
		if err := w.begin(c); err != nil {
			return err
		}
		steps = append(steps, change(c, model.Running))
		c.Version++
		ends = append(ends, change(c, model.Succeeded))
	}
	if err := n.tryCommit(steps...); err != nil {
		return err
	}
	// Noted before the commit, because after it the key's next run may begin.
	for _, c := range runs {
		w.end(c)
	}
	return n.tryCommit(ends...)
}

// drain ends the runs that workers released when they stopped.
func (p *probe) drain(w *watch) {
	p.Helper()
	node := p.join()
	for {
		runs := node.claim(100)
		if len(runs) == 0 {
			return
		}
		if err := node.pass(w, runs); err != nil {
			p.Fatal(err)
		}
	}
}

// A watch checks which run of a key is in flight, and which have ended.
type watch struct {
	mu    sync.Mutex // guards the rest
	busy  map[string]string
	done  map[string][]string
	total int
	err   error
}

func (w *watch) begin(c store.Claimed) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other := w.busy[c.Key]; other != "" {
		w.err = fmt.Errorf("runs %s and %s of key %s at once", other, c.ID, c.Key)
	}
	w.busy[c.Key] = c.ID
	return w.err
}

func (w *watch) end(c store.Claimed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[c.Key] = ""
	w.done[c.Key] = append(w.done[c.Key], c.ID)
	w.total++
}

func (w *watch) count() (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, w.err
}
