package watch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/store"
)

const (
	// LookEvery is the interval between reads of runs that other nodes drive.
	LookEvery = 100 * time.Millisecond

	// lookMost bounds the runs of one such read. With more runs, each has its turn less often.
	lookMost = 500

	// dueMost bounds the runs of one read among those that this node has released.
	dueMost = 256
)

// MostWatchers bounds the watchers of runs on one node. MostFollowers bounds those of them that
// follow each step.
const (
	MostWatchers  = 10_000
	MostFollowers = 1_000
)

// ErrFull reports that this node has the maximum number of watchers.
var ErrFull = errors.New("too many wait for runs on this node")

// A Watch wakes callers that wait for runs. Set its fields before the first use.
type Watch struct {
	// News reads runs from the store, like [store.Runs].
	News func(ctx context.Context, of []store.Seen) ([]store.RunRecord, error)

	// Drives reports whether this node drives a run, and so will call Left.
	Drives func(run string) bool

	Log *slog.Logger

	// These are written under the lock. Reporting a run reads them before, since most runs have nobody to report to.
	watched   atomic.Int64 // number of topics
	followers atomic.Int64 // number of watchers that follow each step

	ticks atomic.Bool   // the loop looks again after [LookEvery]
	wake  chan struct{} // something is due; made by the first watcher
	begin sync.Once

	mu       sync.Mutex // guards the following
	topics   map[string]*topic
	turn     []*topic // all topics, in the order of their turns
	due      []*topic // topics to look at now
	watchers int
}

// A topic is a watched run.
type topic struct {
	run      string
	watchers []*Watcher
	version  int64 // the version that all followers have seen; -1 without followers
	isDue    bool
	left     bool // this node has released the run since the last look
	stirred  bool // this node has saved a step since the last look
	gone     bool
}

// A Watcher waits for one run.
type Watcher struct {
	w       *Watch
	topic   *topic
	follows bool
	hears   bool                 // needs only what Ended passes about the end
	news    chan store.RunRecord // the latest; replaced until it is taken
}

// News returns the news of the run: its end and, for a follower, each newer step. Steps in quick
// succession are merged. Nothing follows the end.
func (w *Watcher) News() <-chan store.RunRecord { return w.news }

// Join waits for the end of a run. The error is [ErrFull]. The watcher must call Leave.
func (w *Watch) Join(run string) (*Watcher, error) { return w.join(run, &Watcher{}, -1) }

// Hear is like Join. But if this node ends the run, the watcher gets the record passed to Ended,
// without a read from the store.
func (w *Watch) Hear(run string) (*Watcher, error) { return w.join(run, &Watcher{hears: true}, -1) }

// Follow also waits for the steps of a run after a version that the follower has seen.
func (w *Watch) Follow(run string, version int64) (*Watcher, error) {
	return w.join(run, &Watcher{follows: true}, version)
}

// room makes the channel that wakes the loop.
func (w *Watch) room() chan struct{} {
	w.begin.Do(func() { w.wake = make(chan struct{}, 1) })
	return w.wake
}

func (w *Watch) join(run string, one *Watcher, version int64) (*Watcher, error) {
	one.w, one.news = w, make(chan store.RunRecord, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers >= MostWatchers || one.follows && w.followers.Load() >= MostFollowers {
		return nil, ErrFull
	}
	t := w.topics[run]
	if t == nil {
		t = &topic{run: run, version: -1}
		if w.topics == nil {
			w.topics = map[string]*topic{}
		}
		w.topics[run] = t
		w.turn = append(w.turn, t)
		if w.watched.Add(1) == 1 && !w.ticks.Load() {
			w.signal()
		}
	}
	w.watchers++
	if one.follows {
		w.followers.Add(1)
		if t.version < 0 || version < t.version {
			t.version = version
		}
	}
	t.watchers, one.topic = append(t.watchers, one), t
	// A node releases a run before it reports that. So a watcher that joins in between finds it
	// released.
	if !w.Drives(run) {
		w.makeDue(t)
	}
	return one, nil
}

// Leave ends the wait. It may be called several times.
func (o *Watcher) Leave() {
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(o.topic.watchers, o)
	if i < 0 {
		return
	}
	o.topic.watchers = slices.Delete(o.topic.watchers, i, i+1)
	w.count(o, -1)
	if len(o.topic.watchers) == 0 {
		w.forget(o.topic)
	}
}

// count adds n to the numbers of watchers. The caller holds the lock.
func (w *Watch) count(o *Watcher, n int) {
	w.watchers += n
	if o.follows {
		w.followers.Add(int64(n))
	}
}

// forget ends a topic. The caller holds the lock.
func (w *Watch) forget(t *topic) {
	if !t.gone {
		t.gone = true
		delete(w.topics, t.run)
		w.watched.Add(-1)
	}
}

// makeDue schedules a topic for a look now. The caller holds the lock.
func (w *Watch) makeDue(t *topic) {
	if t.isDue || t.gone {
		return
	}
	t.isDue = true
	w.due = append(w.due, t)
	w.signal()
}

// signal wakes the loop.
func (w *Watch) signal() {
	select {
	case w.room() <- struct{}{}:
	default:
	}
}

// Left reports that this node has released a run: it has ended, is parked, or is lost to the node.
func (w *Watch) Left(run string) {
	if w.watched.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[run]; t != nil {
		t.left = true
		w.makeDue(t)
	}
}

// Ended reports that this node has saved the end of a run. The record has the result.
func (w *Watch) Ended(r store.RunRecord) {
	if w.watched.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[r.ID]
	if t == nil {
		return
	}
	t.watchers = slices.DeleteFunc(t.watchers, func(o *Watcher) bool {
		if o.hears {
			o.news <- r // there is room, because it has got nothing before
			w.count(o, -1)
		}
		return o.hears
	})
	if len(t.watchers) == 0 {
		w.forget(t)
	}
}

// Saved reports that this node has saved a step of a run. Those who wait for the end alone need no step.
func (w *Watch) Saved(run string) {
	if w.followers.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[run]; t != nil && t.version >= 0 {
		t.stirred = true
	}
}

// Run looks for news until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var tick <-chan time.Time // nil if nobody watches
	for wake := w.room(); ; {
		if tick == nil {
			w.ticks.Store(false) // before it counts the topics: the first one that comes later wakes it
			if w.watched.Load() > 0 {
				tick = time.After(LookEvery)
				w.ticks.Store(true)
			}
		}
		var asked []*topic
		select {
		case <-ctx.Done():
			return
		case <-wake:
			asked = w.takeDue()
		case <-tick:
			asked, tick = w.takeTurn(), nil
		}
		for ; len(asked) > 0 && ctx.Err() == nil; asked = w.takeDue() {
			if !w.look(ctx, asked) {
				break
			}
		}
	}
}

// takeDue takes the due topics.
func (w *Watch) takeDue() []*topic {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.due), dueMost)
	asked := slices.Clone(w.due[:n])
	w.due = slices.Delete(w.due, 0, n)
	for _, t := range asked {
		t.isDue, t.stirred = false, false
	}
	return asked
}

// takeTurn takes the topics whose turn it is and which this node does not drive.
func (w *Watch) takeTurn() (asked []*topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn = slices.DeleteFunc(w.turn, func(t *topic) bool { return t.gone })
	head := slices.Clone(w.turn[:min(len(w.turn), lookMost)])
	w.turn = append(slices.Delete(w.turn, 0, len(head)), head...)
	for _, t := range head {
		if t.stirred || !w.Drives(t.run) {
			t.stirred = false
			asked = append(asked, t)
		}
	}
	return asked
}

// look reads topics from the store, and passes on the news. It returns false if the store could not
// be read. The next turn does it.
func (w *Watch) look(ctx context.Context, asked []*topic) bool {
	of := make([]store.Seen, 0, len(asked))
	w.mu.Lock()
	for _, t := range asked {
		if !t.gone {
			of = append(of, store.Seen{Run: t.run, Version: t.version, Left: t.left})
			t.left = false
		}
	}
	w.mu.Unlock()
	if len(of) == 0 {
		return true
	}
	limited, cancel := context.WithTimeout(ctx, clock.StoreTimeout)
	defer cancel()
	news, err := w.News(limited, of)
	for i := range news {
		w.tell(&news[i])
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("runs that somebody waits for cannot be read, trying again", "runs", len(of), "error", err)
		w.again(asked)
	}
	return err == nil
}

// again schedules topics for the next turn, also those that this node drives.
func (w *Watch) again(asked []*topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range asked {
		t.stirred = true
	}
}

// tell passes on news of a run.
func (w *Watch) tell(r *store.RunRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.topics[r.ID]
	if t == nil {
		return
	}
	ended := r.Status.Ended()
	for _, o := range t.watchers {
		if !ended && !o.follows {
			continue
		}
		select {
		case <-o.news: // an older one that nobody has taken
		default:
		}
		o.news <- *r // there is room: only this goroutine sends, under the lock
	}
	if !ended {
		t.version = r.Version
		return
	}
	for _, o := range t.watchers {
		w.count(o, -1)
	}
	t.watchers = nil
	w.forget(t)
}
