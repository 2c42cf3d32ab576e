package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/engine/watch"
)

// A ledger is the store and the node around a watch.
type ledger struct {
	watch watch.Watch

	mu     sync.Mutex // guards the following
	runs   map[string]store.RunRecord
	driven map[string]bool
	err    error
	looks  int
	asked  int // ids of all looks
	most   int // ids of one look
}

func newLedger(t *testing.T) *ledger {
	l := &ledger{runs: map[string]store.RunRecord{}, driven: map[string]bool{}}
	l.watch = watch.Watch{News: l.news, Drives: l.drives, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.watch.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func (l *ledger) drives(run string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.driven[run]
}

func (l *ledger) news(_ context.Context, of []store.Seen) (news []store.RunRecord, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks, l.asked, l.most = l.looks+1, l.asked+len(of), max(l.most, len(of))
	if l.err != nil {
		return nil, l.err
	}
	for _, s := range of {
		if r, ok := l.runs[s.Run]; ok && s.IsNews(r.Status, r.Version) {
			news = append(news, r)
		}
	}
	return news, nil
}

// set says how far a run is, and whether this node has it.
func (l *ledger) set(run string, version int64, status model.Status, driven bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[run] = store.RunRecord{ID: run, Version: version, Status: status}
	l.driven[run] = driven
}

// fail lets the store answer with an error, or no longer.
func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// count returns how often the store was asked about how many runs since the last time.
func (l *ledger) count() (looks, asked, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	looks, asked, most = l.looks, l.asked, l.most
	l.looks, l.asked, l.most = 0, 0, 0
	return looks, asked, most
}

func join(t *testing.T, l *ledger, run string) *watch.Watcher {
	t.Helper()
	w, err := l.watch.Join(run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Leave)
	return w
}

// has reads what has come; false for nothing.
func has(w *watch.Watcher) (store.RunRecord, bool) {
	synctest.Wait()
	select {
	case r := <-w.News():
		return r, true
	default:
		return store.RunRecord{}, false
	}
}

func TestEndOfARunOfThisNodeWakesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.set("a", 1, model.Running, true)
		one, two := join(t, l, "a"), join(t, l, "a")
		time.Sleep(time.Minute)
		if looks, _, _ := l.count(); looks != 0 {
			t.Errorf("want no look at a run that this node drives, have %d", looks)
		}
		began := time.Now()
		l.set("a", 2, model.Succeeded, false)
		l.watch.Left("a")
		for _, w := range []*watch.Watcher{one, two} {
			if r, ok := has(w); !ok || r.Version != 2 || time.Since(began) > 0 {
				t.Errorf("want the end at once, have %v %+v after %s", ok, r, time.Since(began))
			}
		}
		if looks, asked, _ := l.count(); looks != 1 || asked != 1 {
			t.Errorf("want one look at one run, have %d at %d", looks, asked)
		}
	})
}

func TestEndOfARunOfThisNodeIsHeardWithoutALook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.set("a", 1, model.Running, true)
		one, err := l.watch.Hear("a")
		if err != nil {
			t.Fatal(err)
		}
		defer one.Leave()
		two := join(t, l, "a")
		l.watch.Ended(store.RunRecord{ID: "a", Version: 2, Status: model.Succeeded})
		if r, ok := has(one); !ok || r.Version != 2 {
			t.Errorf("want the end heard, have %v %+v", ok, r)
		}
		if r, ok := has(two); ok {
			t.Errorf("want nothing told to who waits for the whole run, have %+v", r)
		}
		if looks, _, _ := l.count(); looks != 0 {
			t.Errorf("want no look, have %d", looks)
		}
	})
}

func TestRunThatEndedBeforeTheWaitIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.set("a", 2, model.Failed, false)
		if r, ok := has(join(t, l, "a")); !ok || r.Status != model.Failed {
			t.Errorf("want the end, have %v %+v", ok, r)
		}
	})
}

// A run that this node drove is lost to it, and another one finishes it.
func TestEndOnAnotherNodeIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.set("a", 1, model.Running, true)
		w := join(t, l, "a")
		l.set("a", 1, model.Running, false)
		l.watch.Left("a")
		if _, ok := has(w); ok {
			t.Error("want no end yet")
		}
		l.fail(errors.New("store is away"))
		time.Sleep(time.Second)
		l.set("a", 3, model.Succeeded, false)
		l.fail(nil)
		time.Sleep(watch.LookEvery)
		if _, ok := has(w); !ok {
			t.Error("want the end within one look")
		}
	})
}

func TestPaceDoesNotGrowWithTheWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		var all []*watch.Watcher
		for i := range 5000 {
			id := fmt.Sprint("r", i)
			l.set(id, 1, model.Running, false)
			all = append(all, join(t, l, id))
		}
		synctest.Wait()
		l.count()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if looks, asked, most := l.count(); looks > 101 || asked > 101*500 || most > 500 {
			t.Errorf("want at most 100 looks of 500 runs in 10 s, have %d of %d, %d in all", looks, most, asked)
		}
		for i := range all {
			l.set(fmt.Sprint("r", i), 2, model.Succeeded, false)
		}
		time.Sleep(2 * time.Second)
		for i, w := range all {
			if _, ok := has(w); !ok {
				t.Fatalf("waiter %d has not seen the end", i)
			}
		}
		l.count()
		time.Sleep(10 * time.Second)
		if looks, _, _ := l.count(); looks != 0 {
			t.Errorf("want no look when nobody waits, have %d", looks)
		}
	})
}

func TestFollowersSeeStepsAndTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		for _, driven := range []bool{true, false} {
			run := fmt.Sprint("driven ", driven)
			l.set(run, 1, model.Running, driven)
			w, err := l.watch.Follow(run, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Leave()
			end := join(t, l, run)
			for version := int64(2); version < 5; version++ {
				l.set(run, version, model.Running, driven)
				l.watch.Saved(run)
				time.Sleep(2 * watch.LookEvery)
				if r, ok := has(w); !ok || r.Version != version {
					t.Errorf("%s: want version %d, have %v %d", run, version, ok, r.Version)
				}
			}
			if _, ok := has(end); ok {
				t.Errorf("%s: want nothing for one who waits for the end", run)
			}
			l.set(run, 5, model.Failed, false)
			l.watch.Left(run)
			time.Sleep(watch.LookEvery)
			for _, w := range []*watch.Watcher{w, end} {
				if r, ok := has(w); !ok || r.Status != model.Failed {
					t.Errorf("%s: want the end, have %v %+v", run, ok, r)
				}
			}
		}
	})
}

func TestWatchersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(t)
		l.set("a", 1, model.Running, true)
		var last *watch.Watcher
		for range watch.MostFollowers {
			last, _ = l.watch.Follow("a", 1)
		}
		if _, err := l.watch.Follow("a", 1); !errors.Is(err, watch.ErrFull) {
			t.Errorf("want %v, have %v", watch.ErrFull, err)
		}
		last.Leave()
		last.Leave()
		for range watch.MostWatchers - watch.MostFollowers + 1 {
			if _, err := l.watch.Join("a"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.watch.Join("b"); !errors.Is(err, watch.ErrFull) {
			t.Errorf("want %v, have %v", watch.ErrFull, err)
		}
		l.set("a", 2, model.Cancelled, false)
		l.watch.Left("a")
		synctest.Wait()
		if _, err := l.watch.Join("b"); err != nil {
			t.Errorf("want room after the end, have %v", err)
		}
	})
}
