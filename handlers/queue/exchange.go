package queue

import (
	"context"
	"slices"
	"time"

	"procaas/engine/clock"
	"procaas/engine/guard"
	"procaas/engine/pgkit"
	"procaas/handlers/queue/taskrun"
)

// exchanges reports ended tasks and claims new ones, until ctx ends. While a transaction is in
// flight, the next one collects more. There is no other delay.
func (w *Worker) exchanges(ctx context.Context) {
	backoff := clock.Backoff{First: firstPause, Most: time.Second}
	for {
		report, claim, heard, ok := w.gather()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-w.news:
			}
			continue
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeWithin)
		tasks, lost, err := w.store.ExchangeTasks(limited, report, claim)
		cancel()
		w.learn(claim, heard, tasks, lost, time.Since(began), err)
		if err == nil {
			w.room(report)
			backoff.Reset()
			continue
		}
		// The report may have been written. Repeating it changes nothing then.
		w.putBack(report)
		w.o.Log.Warn("the store of tasks cannot be reached, trying again", "error", err)
		if !backoff.Pause(ctx) {
			return
		}
	}
}

// gather collects what is worth a transaction. ok is false if nothing is. heard is the last hint
// before it.
func (w *Worker) gather() (report Report, claim Claim, heard uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	report = w.cut(exchangeMost)
	claim = Claim{Worker: w.o.Name, Lease: w.o.Lease, Limit: exchangeMost}
	if !w.over {
		for _, l := range w.lines {
			n := min(l.shortage(w.ahead, w.o.Prefetch), exchangeMost)
			// A few tasks are not worth a claim while others still wait here.
			if l.fed >= w.heard || n <= 0 || len(l.waiting) > n {
				continue
			}
			// Tasks that begin at once are claimed as running, so that a task that kills its worker
			// is known to have run.
			claim.Prefetch = claim.Prefetch || n > l.running-l.busy-len(l.waiting)-l.asked
			l.asked += n
			want := l.want
			want.Limit = n
			claim.Types = append(claim.Types, want)
		}
	}
	if report.Len() > 0 || len(claim.Types) > 0 {
		pgkit.Signal(w.news) // the other lane may have something to do, too
		return report, claim, w.heard, true
	}
	return report, claim, 0, false
}

// cut takes the first n outcomes to report.
func (w *Worker) cut(n int) (r Report) {
	r.Completed, w.done.Completed = cutList(w.done.Completed, n)
	r.Failed, w.done.Failed = cutList(w.done.Failed, n-r.Len())
	r.Snoozed, w.done.Snoozed = cutList(w.done.Snoozed, n-r.Len())
	r.Plain, w.keyed = !w.keyed, w.keyed && w.done.Len() > 0
	return r
}

func cutList[T any](list []T, n int) (first, rest []T) {
	if len(list) <= n {
		return list, nil
	}
	return list[:n:n], list[n:]
}

func (w *Worker) putBack(r Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done.Completed = append(r.Completed, w.done.Completed...)
	w.done.Failed = append(r.Failed, w.done.Failed...)
	w.done.Snoozed = append(r.Snoozed, w.done.Snoozed...)
	w.keyed = w.keyed || !r.Plain
}

// heldAtOnce is for how many tasks memory is allocated at once. The last of them keeps all of it.
const heldAtOnce = 16

// learn applies the result of an exchange. Its parameters are the inputs and outputs of the
// exchange.
func (w *Worker) learn(claim Claim, heard uint64, tasks []Task, lost []Ref, took time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, want := range claim.Types {
		w.types[want.Type].asked -= want.Limit
	}
	w.lose(lost)
	if err != nil {
		return
	}
	if len(claim.Types) > 0 {
		w.ahead = max(leastAhead, (3*w.ahead+4*took)/4)
		got := map[string]int{}
		for i := range tasks {
			got[tasks[i].Type]++
		}
		// A claim that got less than it asked for has taken all there was, unless hints came since.
		for _, want := range claim.Types {
			if l := w.types[want.Type]; got[want.Type] < want.Limit && len(tasks) < claim.Limit {
				l.fed = max(l.fed, heard)
			}
		}
	}
	w.total += len(tasks)
	var room []held // allocated in blocks
	for i := range tasks {
		if len(room) == 0 {
			room = make([]held, min(heldAtOnce, len(tasks)-i))
		}
		h := &room[0]
		room = room[1:]
		l := w.types[tasks[i].Type]
		h.Task, h.line = tasks[i], l
		if w.over {
			w.done.Snoozed = append(w.done.Snoozed, Snooze{TaskRef: h.Ref()})
			w.keyed = w.keyed || h.Unique != ""
			continue
		}
		if older := w.held[h.ID]; older != nil {
			w.lose([]Ref{older.Ref()}) // this worker itself has taken it again
		}
		w.held[h.ID] = h
		l.waiting = append(l.waiting, h)
		if l.idle > 0 && len(l.waiting) <= l.idle {
			l.work.Signal()
		}
	}
	pgkit.Signal(w.news)
}

// lose drops tasks that other workers may have.
func (w *Worker) lose(lost []Ref) {
	for _, ref := range lost {
		h := w.held[ref.ID]
		if h == nil || h.Ref() != ref {
			continue // its outcome is reported already
		}
		h.gone = true
		delete(w.held, ref.ID)
		if !h.begun.IsZero() {
			h.attempt.cancel(ErrLost)
		}
		w.o.Log.Warn("task is lost: this worker was not heard of in time", "type", h.Type, "task", h.ID)
	}
}

// flush reports the remaining outcomes.
func (w *Worker) flush(ctx context.Context) error {
	for {
		w.mu.Lock()
		report := w.cut(exchangeMost)
		w.mu.Unlock()
		if report.Len() == 0 {
			return nil
		}
		if _, err := w.store.ReportTasks(ctx, report); err != nil {
			w.putBack(report)
			if !clock.Pause(ctx, 100*time.Millisecond) {
				return err
			}
		}
	}
}

// A hint wakes all workers, though one of them may take all tasks. Workers that come too late wait
// a moment the next time, so that many idle workers cost little.
const (
	firstYield = time.Millisecond
	maxYield   = 20 * time.Millisecond
)

// listen makes the worker look for tasks: at a hint, and now and then without one.
func (w *Worker) listen(ctx context.Context, woken <-chan struct{}) {
	yield, before := time.Duration(0), -1
	poll := time.NewTicker(w.o.Poll)
	defer poll.Stop()
	for {
		hint := false
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-woken:
			hint = true
		}
		held, total := w.holds()
		if total != before || held > 0 {
			yield = 0
		} else if hint {
			yield = min(max(2*yield, firstYield), maxYield)
		}
		if hint && held == 0 && yield > 0 && !clock.Pause(ctx, yield) {
			return
		}
		before = total
		w.hear()
	}
}

// holds returns how many tasks the worker holds, and how many it has ever taken.
func (w *Worker) holds() (held, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held), w.total
}

// hear notes that there may be tasks to take.
func (w *Worker) hear() {
	w.mu.Lock()
	w.heard++
	w.mu.Unlock()
	pgkit.Signal(w.news)
}

// room notes that there may be tasks to take that a limit of their type or key kept back, because
// others of them have ended.
func (w *Worker) room(r Report) {
	bounded := func(l *line) bool { return l.want.MaxTaken > 0 || l.want.MaxPerKey > 0 }
	if r.Len() > 0 && slices.ContainsFunc(w.lines, bounded) {
		w.hear()
	}
}

// beat renews the leases of held tasks, until ctx ends.
func (w *Worker) beat(ctx context.Context) {
	for clock.Pause(ctx, w.o.Lease/3) {
		w.mu.Lock()
		beats := make([]Beat, 0, len(w.held))
		for _, h := range w.held {
			if !h.gone {
				beats = append(beats, Beat{TaskRef: h.Ref(), Running: !h.begun.IsZero(), Lease: w.o.Lease})
			}
		}
		w.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, w.o.Lease/2)
		lost, err := w.store.BeatTasks(limited, beats)
		cancel()
		if err != nil {
			w.o.Log.Warn("tasks cannot be kept, trying again", "tasks", len(beats), "error", err)
			continue
		}
		w.mu.Lock()
		w.lose(lost)
		w.mu.Unlock()
	}
}

// care promotes scheduled tasks and reclaims those of dead workers, until ctx ends.
func (w *Worker) care(ctx context.Context) {
	reclaim := time.Now()
	for wait := time.Duration(0); clock.Pause(ctx, wait); {
		limited, cancel := context.WithTimeout(ctx, 2*exchangeWithin) // for both: a broken connection may report nothing
		n, next, err := w.store.PromoteTasks(limited, careAtOnce)
		wait = time.Second
		switch {
		case err == nil && n == careAtOnce:
			wait = 0
		case err == nil && next > 0:
			wait = min(wait, next)
		}
		if err == nil && time.Since(reclaim) > w.o.Lease/3 {
			_, err = w.store.ReclaimTasks(limited, careAtOnce, guard.MaxLost)
			reclaim = time.Now()
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			w.o.Log.Warn("tasks cannot be cared for, trying again", "error", err)
		}
	}
}

// raise raises tasks of a type that have waited too long, until ctx ends.
func (w *Worker) raise(ctx context.Context, l *line) {
	for wait := time.Duration(0); clock.Pause(ctx, wait); {
		limited, cancel := context.WithTimeout(ctx, exchangeWithin)
		n, err := w.store.RaiseTasks(limited, l.want.Type, l.maxWait, careAtOnce)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.o.Log.Warn("tasks that wait for too long cannot be raised, trying again", "type", l.want.Type, "error", err)
		}
		wait = taskrun.RaisePause(l.maxWait, n == careAtOnce)
	}
}
