package conformance

import (
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Benchmark measures the calls of a store that every run makes, as the engine makes them: in shared
// transactions, two at a time. All changes are durable.
func Benchmark(b *testing.B, open func(b *testing.B) store.Store) {
	for _, size := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("Accept/batch=%d", size), func(b *testing.B) { benchAccept(newBench(b, open(b), size)) })
		b.Run(fmt.Sprintf("Commit/batch=%d", size), func(b *testing.B) { benchCommit(newBench(b, open(b), size)) })
		b.Run(fmt.Sprintf("Claim/batch=%d", size), func(b *testing.B) { benchClaim(newBench(b, open(b), size)) })
		b.Run(fmt.Sprintf("Life/batch=%d", size), func(b *testing.B) { benchLife(newBench(b, open(b), size)) })
	}
}

// BenchmarkBacklog measures how much waiting events slow others down. It claims and ends runs while
// this many wait behind them.
func BenchmarkBacklog(b *testing.B, open func(b *testing.B) store.Store, waiting int) {
	p := newBench(b, open(b), 64)
	for n := 0; n < waiting; n += 2000 {
		batch := make([]model.Intake, min(2000, waiting-n))
		for i := range batch {
			batch[i] = p.event("key", unordered, func(in *model.Intake) { in.Dedup = false })
		}
		p.accept(batch...)
	}
	// Claimed runs are replaced, so the number of waiting ones stays the same.
	for b.Loop() {
		batch := p.events(unordered, priority(1))
		p.accept(batch...)
		runs := p.claim(p.size)
		if runs[0].ID != batch[0].ID {
			b.Fatalf("want the urgent run %s claimed, have %s", batch[0].ID, runs[0].ID)
		}
		if err := p.checkpoint(runs, model.Succeeded); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*p.size)/b.Elapsed().Seconds(), "ops/s")
}

// A bench is a node for one benchmark. An operation is one event or change.
type bench struct {
	*member
	b    *testing.B
	size int
	done atomic.Int64
}

func newBench(b *testing.B, s store.Store, size int) *bench {
	return &bench{member: newProbe(b, s).join(), b: b, size: size}
}

// lanes is how many transactions are in flight at once.
const lanes = 2

// measure calls do for a batch at a time, until b.N operations are done.
func (p *bench) measure(do func(lane int) error) {
	p.b.ResetTimer()
	var g errgroup.Group
	for lane := range lanes {
		g.Go(func() error {
			for p.done.Add(int64(p.size)) <= int64(p.b.N+p.size-1) {
				if err := do(lane); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		p.Fatal(err)
	}
	p.b.StopTimer()
	p.b.ReportMetric(float64(p.b.N)/p.b.Elapsed().Seconds(), "ops/s")
}

// events makes a batch of events with different keys.
func (p *bench) events(with ...func(*model.Intake)) []model.Intake {
	batch := make([]model.Intake, p.size)
	for i := range batch {
		batch[i] = p.event("", with...)
		batch[i].Key = batch[i].ID
		batch[i].Event.Payload = map[string]any{"order-id": i, "text": long(200)}
	}
	return batch
}

func benchAccept(p *bench) {
	p.measure(func(int) error {
		_, err := p.Inbox.Accept(p.Context(), 0, p.events())
		return err
	})
}

// checkpointSize is the size of the checkpoint of a run with a few handlers.
const checkpointSize = 800

func (p *bench) checkpoint(runs []store.Claimed, s model.Status) error {
	changes := make([]model.Change, len(runs))
	for i := range runs {
		changes[i] = change(runs[i], s)
		changes[i].Checkpoint = []byte(long(checkpointSize))
		changes[i].State = "open"
		runs[i].Version++
	}
	return p.tryCommit(changes...)
}

func benchCommit(p *bench) {
	const perLane = 512
	var runs [lanes][]store.Claimed
	for lane := range runs {
		for len(runs[lane]) < perLane {
			runs[lane] = append(runs[lane], p.own()...)
		}
	}
	next := [lanes]int{}
	p.measure(func(lane int) error {
		if next[lane]+p.size > len(runs[lane]) {
			next[lane] = 0
		}
		from := next[lane]
		next[lane] += p.size
		return p.checkpoint(runs[lane][from:from+p.size], model.Running)
	})
}

// own accepts a batch of events whose runs begin at once.
func (p *bench) own() []store.Claimed {
	var runs []store.Claimed
	for _, a := range p.acceptFor(p.id, p.events(owned)...) {
		runs = append(runs, *a.Claimed)
	}
	return runs
}

func benchClaim(p *bench) {
	for n := 0; n < p.b.N+lanes*p.size; n += 1000 {
		batch := make([]model.Intake, 1000)
		for i := range batch {
			batch[i] = p.event("key", unordered)
		}
		p.accept(batch...)
	}
	p.measure(func(int) error {
		runs, err := p.Ledger.Claim(p.Context(), p.id, p.size, "")
		if err == nil && len(runs) == 0 {
			err = fmt.Errorf("nothing is ready after %d operations", p.done.Load())
		}
		return err
	})
}

// benchLife takes events from acceptance through three checkpoints to their end.
func benchLife(p *bench) {
	p.measure(func(int) error {
		runs := p.own()
		for range 3 {
			if err := p.checkpoint(runs, model.Running); err != nil {
				return err
			}
		}
		return p.checkpoint(runs, model.Succeeded)
	})
}
