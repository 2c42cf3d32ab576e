package writes

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// write is a [Shared] of one function.
type write func(items []int) []int

func (w write) Write(items []int) []int { return w(items) }

func TestBatcherSharesCallsAndKeepsResultsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls, active, most atomic.Int32
		b := &Batcher[int, int]{Most: 10, Lanes: 2, Shared: write(func(items []int) []int {
			calls.Add(1)
			most.Store(max(most.Load(), active.Add(1)))
			defer active.Add(-1)
			if len(items) > 10 {
				t.Errorf("%d items in one call", len(items))
			}
			time.Sleep(time.Millisecond)
			out := make([]int, len(items))
			for i, n := range items {
				out[i] = -n
			}
			return out
		})}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				items := make([]int, i%25)
				for j := range items {
					items[j] = i*100 + j
				}
				out, err := b.Call(context.Background(), items)
				if err != nil || len(out) != len(items) {
					t.Errorf("want %d results, have %d and %v", len(items), len(out), err)
					return
				}
				for j := range out {
					if out[j] != -items[j] {
						t.Errorf("want %d, have %d", -items[j], out[j])
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if most.Load() != 2 {
			t.Errorf("want 2 calls at once, have %d", most.Load())
		}
		if len(b.calls) != 0 || len(b.queue) != 0 || b.waiting != 0 {
			t.Errorf("want all lanes free at the end, have %d busy and %d waiting", len(b.calls), b.waiting)
		}
	})
}

func TestBatcherOutlivesCallersThatGoAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &Batcher[int, int]{Most: 4, Lanes: 1, Shared: write(func(items []int) []int {
			time.Sleep(10 * time.Millisecond)
			return items
		})}
		var wg sync.WaitGroup
		var gone, served atomic.Int32
		for i := range 50 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
				defer cancel()
				switch _, err := b.Call(ctx, []int{i}); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					gone.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if served.Load() == 0 || gone.Load() == 0 {
			t.Errorf("want some served and some gone, have %d and %d", served.Load(), gone.Load())
		}
		if out, err := b.Call(context.Background(), []int{7}); err != nil || out[0] != 7 {
			t.Errorf("want the batcher alive, have %v and %v", out, err)
		}
	})
}

// A call takes what callers add that are ready to run, and not only what the first of them has added.
func TestBatcherLetsReadyCallersJoin(t *testing.T) { // not parallel: it sets how many goroutines run at once
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	calls := 0
	b := &Batcher[int, int]{Most: 100, Lanes: 1, Shared: write(func(items []int) []int {
		calls++
		return items
	})}
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			if _, err := b.Call(t.Context(), []int{1}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if calls > 3 { // the scheduler may prefer the call now and then
		t.Errorf("want most of 20 callers in one call, have %d calls", calls)
	}
}

// A caller must not be stuck with a call that hangs, whether it was the first or waits behind it.
func TestBatcherLetsCallersOfACallThatHangsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		dropped := 0
		b := &Batcher[int, int]{Most: 4, Lanes: 1, Shared: write(func(items []int) []int {
			<-hang
			return items
		}), Dropped: func(items int) { dropped += items }}
		ends := make(chan error, 3)
		call := func(ctx context.Context) {
			go func() {
				_, err := b.Call(ctx, []int{1})
				ends <- err
			}()
			synctest.Wait()
		}
		left, leave := context.WithCancel(t.Context())
		call(left)
		leave()
		synctest.Wait()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Errorf("want the first caller to leave, have %v", err)
		}
		call(t.Context())
		why := errors.New("the store hangs")
		b.Release(why)
		if err := <-ends; !errors.Is(err, why) || dropped != 1 {
			t.Errorf("want the caller in the queue to hear why, have %v and %d dropped", err, dropped)
		}
		call(t.Context())
		close(hang)
		if err := <-ends; err != nil {
			t.Errorf("want the batcher to go on, have %v", err)
		}
	})
}

// A write that hangs must release those who wait for it, and go on to do so.
func TestHealthReleasesCallersOfAWriteThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w Health
		var told []time.Duration
		began := time.Now()
		var mu sync.Mutex
		w.Tell(waiting(func(error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, time.Since(began))
		}))
		w.Begin(time.Now())() // one that ends
		time.Sleep(FailFor - time.Millisecond)
		end := w.Begin(time.Now())
		time.Sleep(2*FailFor + 2*time.Millisecond)
		end()
		w.Note(nil, began, time.Now())
		time.Sleep(3 * FailFor)
		synctest.Wait()
		if len(told) != 2 || told[0] != 2*FailFor-time.Millisecond || told[1]-told[0] != FailFor {
			t.Errorf("want callers released after %s, and once more after as long, have %v", 2*FailFor-time.Millisecond, told)
		}
	})
}

// waiting is a [Waiting] of one function.
type waiting func(error)

func (w waiting) Release(err error) { w(err) }

// A caller that others have answered leaves its ticket to a call that goes on. Nobody else may get the result of that call.
func TestBatcherGivesResultsToNobodyElse(t *testing.T) {
	t.Parallel()
	why := errors.New("the store hangs")
	b := &Batcher[int, int]{Most: 4, Lanes: 2, Shared: write(func(items []int) []int {
		out := make([]int, len(items))
		for i, n := range items {
			runtime.Gosched()
			out[i] = -n
		}
		return out
	})}
	var callers sync.WaitGroup
	var written, released atomic.Int64
	for caller := range 8 {
		callers.Go(func() {
			for i := range 2000 {
				n := caller*10_000 + i
				switch have, err := b.CallOne(t.Context(), n); {
				case err == nil && have == -n:
					written.Add(1)
				case errors.Is(err, why):
					released.Add(1)
				default:
					t.Errorf("want %d or the error, have %d and %v", -n, have, err)
				}
				if i%3 == 0 {
					b.Release(why)
				}
			}
		})
	}
	callers.Wait()
	if written.Load() == 0 || released.Load() == 0 {
		t.Errorf("want calls with both outcomes, have %d results and %d errors", written.Load(), released.Load())
	}
}

// A store has many frames on the stack when it writes. A call takes a third of the time that it would take if its stack grew step by
// step.
func BenchmarkBatcherOfADeepStore(b *testing.B) {
	w := &Batcher[int, int]{Most: 4, Lanes: 1, Shared: write(func(items []int) []int {
		descend(12)
		return items
	})}
	for b.Loop() {
		if _, err := w.CallOne(b.Context(), 1); err != nil {
			b.Fatal(err)
		}
	}
}

// descend uses that many frames of the stack.
//
//go:noinline
func descend(frames int) byte {
	var space [300]byte
	space[frames] = 1
	if frames > 0 {
		return descend(frames-1) + space[frames/2]
	}
	return space[1]
}
