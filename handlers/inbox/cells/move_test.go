package cells_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/inbox/cells"
)

// counting is a flow whose entities count their events, and tell a neighbour, whose key
// is in another slot, of each.
const counting = `
flows:
  - {id: account, key: !$ event.key, shared-state: {n: 0}}
pipelines:
  - id: step
    flow: account
    on: step
    stages:
      - id: a
        handlers:
          - {id: count, counted: {value: !$ shared-state.n}, result: {n: !$ sources.count.response}}
  - id: told
    on: told
    stages: [{id: a, handlers: [{id: hear, counted: {}}]}]
`

// A ledger remembers what handlers have done.
type ledger struct {
	mu    sync.Mutex // guards the following
	steps map[string][]int
	told  map[string][]int
	wrong []string
}

func (l *ledger) handle(_ context.Context, c *engine.Call, value any) (model.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := c.Event.Payload.(map[string]any)["n"].(int)
	if c.Path == "told/a/hear" {
		l.told[c.Event.Key] = append(l.told[c.Event.Key], n)
		return model.Result{}, nil
	}
	key := c.Event.Key
	if value != n {
		l.wrong = append(l.wrong, fmt.Sprintf("event %d of key %s found %v in the shared state", n, key, value))
	}
	l.steps[key] = append(l.steps[key], n)
	return model.Result{Response: n + 1, Emit: []model.Event{{
		ID: fmt.Sprintf("%s-%d", key, n), Source: "ledger", Type: "told", Key: "to-" + key, Time: time.Now().UTC(),
		Payload: map[string]any{"n": n},
	}}}, nil
}

// check compares with what was accepted: so many events of each key.
func (l *ledger) check(t *testing.T, keys []string, events int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, wrong := range l.wrong {
		t.Error(wrong)
	}
	for _, key := range keys {
		for what, have := range map[string][]int{"handled": l.steps[key], "told": l.told["to-"+key]} {
			if len(have) != events {
				t.Errorf("key %s: %d of %d events were %s", key, len(have), events, what)
			}
			for i, n := range have {
				if n != i {
					t.Errorf("key %s: event %d was %s at place %d", key, n, what, i)
					break
				}
			}
		}
	}
}

// nodes runs an engine on each store until the test ends.
func nodes(t *testing.T, l *ledger, stores ...store.Store) []*engine.Engine {
	t.Helper()
	counted := enginetest.Scripted("counted", l.handle)
	b := enginetest.Load(t, counting, counted)
	var all []*engine.Engine
	for i, store := range stores {
		all = append(all, enginetest.Start(t, engine.Options{
			Store: store, Types: []engine.HandlerType{counted}, Bundle: b, Name: fmt.Sprint("node-", i),
			Lease: time.Minute,
		}))
	}
	return all
}

// submit sends the events of a key in order, each until it is accepted.
func submit(ctx context.Context, t *testing.T, e *engine.Engine, key string, events int) {
	for n := range events {
		s := intake.Submission{Event: model.Event{
			ID: fmt.Sprintf("%s-%d", key, n), Source: "test", Type: "step", Key: key,
			Payload: map[string]any{"n": n},
		}}
		for {
			out, err := e.Submit(ctx, []intake.Submission{s})
			if err == nil && out[0].Err == nil {
				break
			}
			select {
			case <-ctx.Done():
				t.Errorf("event %d of key %s was not accepted: %v, %+v", n, key, err, out)
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func names(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("key-", i))
	}
	return keys
}

// waitFor asks until the answer is yes.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	patience.Until(t, what, done)
}

func TestMoveUnderSubmitters(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			t.Parallel()
			moveUnderSubmitters(t, encrypted)
		})
	}
}

func moveUnderSubmitters(t *testing.T, encrypted bool) {
	t.Helper()
	home, b, c := enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t), enginetest.MigratedPostgres(t)
	others, file := map[string]string{"b": b, "c": c}, keys(t)
	process := func() *cells.Store { // each has a ring of its own
		if encrypted {
			return openAs(t, home, others, time.Minute, sealing(t, file))
		}
		return open(t, home, others)
	}
	first, second := process(), process()
	first.SetPart(4) // several parts, so that others work while one is frozen
	l := &ledger{steps: map[string][]int{}, told: map[string][]int{}}
	engines := nodes(t, l, first.Ports(), second.Ports())

	ctx, cancel := patience.Context(t.Context(), 2*time.Minute)
	defer cancel()
	const events = 25
	accounts := names(12)
	var sending sync.WaitGroup
	for i, key := range accounts {
		sending.Go(func() { submit(ctx, t, engines[i%2], key, events) })
	}
	// All goes to b, then from there to c, and half of that back.
	moves := []struct {
		from, to string
		share    int
	}{{cells.Home, "b", 1}, {"b", "c", 1}, {"c", cells.Home, 2}}
	for i, m := range moves {
		s := []*cells.Store{first, second}[i%2]
		var slots []int
		waitFor(t, "the map of the move before", func() bool { slots = s.Chart().SlotsOf(m.from); return len(slots) == store.InboxSlots })
		if err := s.MoveNow(ctx, cells.Order{
			Slots: slots[:len(slots)/m.share], To: m.to, Wait: time.Minute,
			By: store.Actor{Name: "test"},
		}); err != nil {
			t.Fatal(err)
		}
		if done := s.Chart().Done; len(done) != i+1 || done[i].Error != "" {
			t.Fatalf("want move %d done, have %+v", i, done)
		}
	}
	sending.Wait()
	waitFor(t, "the end of all runs", func() bool {
		counts, err := first.Count(ctx, store.RunFilter{Status: model.Succeeded})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, c := range counts {
			n += c.Runs
		}
		return n >= 2*events*len(accounts)
	})
	l.check(t, accounts, events)
	// What was accepted before the moves is known after them.
	for _, key := range accounts {
		out, err := engines[0].Submit(ctx,
			[]intake.Submission{{Event: model.Event{ID: key + "-0", Source: "test", Type: "step", Key: key, Payload: map[string]any{"n": 0}}}})
		if err != nil || out[0].Err != nil || !out[0].Receipt.Duplicate {
			t.Errorf("key %s: want a repetition known, have %+v, %v", key, out, err)
		}
		e, err := first.Entity(ctx, "account", key)
		if err != nil || len(e.Runs) != events {
			t.Errorf("key %s: want its %d runs found in all cells, have %d, %v", key, events, len(e.Runs), err)
		}
	}
}

// A slot with more runs than are set aside at once moves with all of them, in order.
func TestMoveOfAHeavySlot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := open(t, enginetest.MigratedPostgres(t), map[string]string{"b": enginetest.MigratedPostgres(t)})
	const many = 5200
	var in []model.Intake
	for i := range many {
		in = append(in, order("k", fmt.Sprintf("run-%04d", i)))
	}
	for some := range slices.Chunk(in, 1000) {
		accept(t, s.Ports(), some...)
	}
	moved(t, s, "b", "k")
	counts, err := s.Count(ctx, store.RunFilter{Key: "k", Live: true})
	if err != nil || len(counts) != 1 || counts[0].Runs != many {
		t.Fatalf("want %d runs, have %+v, %v", many, counts, err)
	}
	node := join(t, s.Ports())
	for i := range 3 {
		commit(t, s.Ports(), node, claim(t, s.Ports(), node, fmt.Sprintf("run-%04d", i)), model.Succeeded)
	}
}

// A timed cell tells for how long each part of a move is frozen.
type timed struct {
	store.SlotMoves
	*windows
}

type windows struct {
	mu    sync.Mutex // guards the following
	began map[string]time.Time
	stood []float64 // milliseconds
}

func (c *timed) Freeze(ctx context.Context, move string, slots []int) (int, error) {
	c.mu.Lock()
	if c.began[move].IsZero() {
		c.began[move] = time.Now()
	}
	c.mu.Unlock()
	return c.SlotMoves.Freeze(ctx, move, slots)
}

func (c *timed) Open(ctx context.Context, move string, after int64) error {
	err := c.SlotMoves.Open(ctx, move, after)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stood = append(c.stood, 1000*time.Since(c.began[move]).Seconds())
	return err
}

// BenchmarkFreeze tells for how long a slot is frozen while all slots move, with few
// and with many runs that wait in them. It should not grow with these.
func BenchmarkFreeze(b *testing.B) {
	for _, waiting := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) {
			w := &windows{began: map[string]time.Time{}}
			s := openAs(b, enginetest.MigratedPostgres(b), map[string]string{"b": enginetest.MigratedPostgres(b)}, time.Minute,
				func(_ string, store *store.Cell) *store.Cell { store.Moves = &timed{store.Moves, w}; return store })
			var in []model.Intake
			for i := range waiting {
				in = append(in, order(fmt.Sprint("key-", i), fmt.Sprint("run-", i)))
			}
			for some := range slices.Chunk(in, 1000) {
				if _, err := s.Accept(b.Context(), 0, some); err != nil {
					b.Fatal(err)
				}
			}
			to := []string{"b", cells.Home}
			for i := range b.N {
				if err := s.MoveNow(b.Context(), cells.Order{Slots: cells.All(), To: to[i%2], Wait: time.Minute}); err != nil {
					b.Fatal(err)
				}
				if done := s.Chart().Done; done[len(done)-1].Error != "" {
					b.Fatal(done[len(done)-1].Error)
				}
			}
			slices.Sort(w.stood)
			b.ReportMetric(w.stood[len(w.stood)/2], "ms-frozen-p50")
			b.ReportMetric(w.stood[len(w.stood)-1], "ms-frozen-max")
		})
	}
}
