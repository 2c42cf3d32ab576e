package cells

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"procaas/engine/clock"
	"procaas/engine/store"
)

const (
	extendWhen = 3                    // a move is extended when less than two parts of so many are left
	freezeTry  = 5 * time.Millisecond // the first pause, which doubles up to freezeRest, since a freeze holds up the whole cell
	freezeRest = 100 * time.Millisecond
	lateIDs    = time.Minute      // no transaction that stores ids takes longer
	moveTries  = 60 * time.Second // for writing the map

	// partRows is the number of runs and entities in one part of a move, unless one slot has more. A part stops for as long as its
	// rows are copied.
	partRows = 1000

	weighAtOnce = 128 // slots of one question
)

// A mover makes a move, or ends a move that another process began.
type mover struct {
	*moves
	m        Move // as the map has it
	from, to *part
	wait     time.Duration // for runs in flight

	// The time of the home is known from when the move was written: it was homeTime there, and local here.
	homeTime, local time.Time

	known int64     // ids of events from before this time of the source, in microseconds, are at the target
	began time.Time // when the slots of tasks were frozen; zero once tasks have come to the target

	rows   atomic.Int64 // that were copied
	frozen atomic.Int64 // the longest time that a part has stopped, in microseconds
}

// update changes the move in the map, and repeats that until it is known to be done. The change may be done already, by a try
// without an answer.
func (v *mover) update(ctx context.Context, change func(*Chart, *Move)) error {
	backoff := clock.Backoff{First: freezeTry, Most: time.Second}
	for began := time.Now(); ; {
		var m Move
		err := v.change(ctx, func(c *Chart) ([]store.Audited, error) {
			mine := c.Moves[v.m.ID]
			if mine == nil || mine.Owner != v.m.Owner || mine.Part < v.m.Part {
				return nil, errLost
			}
			mine.Until = v.time().Add(v.takeOver)
			change(c, mine)
			m = *mine
			return nil, nil
		})
		if err == nil {
			v.m = m
		}
		if err == nil || errors.Is(err, errLost) || time.Since(began) > moveTries || !backoff.Pause(ctx) {
			return err
		}
	}
}

// extend tells the other processes from time to time that the move goes on.
func (v *mover) extend(ctx context.Context) error {
	if v.m.Until.Sub(v.time()) > 2*v.takeOver/extendWhen {
		return nil
	}
	return v.update(ctx, func(*Chart, *Move) {})
}

// time returns the time of the home. It does not ask, since slots stand still.
func (v *mover) time() time.Time { return v.homeTime.Add(time.Since(v.local)) }

// during does something in a cell that may take long, and extends the move meanwhile. If another process takes the move over, it
// is cut off. Do gets a copy of the move, because it runs beside this goroutine.
func (v *mover) during(ctx context.Context, p *part, do func(ctx context.Context, db *store.Cell, m Move) error) error {
	if err := v.extend(ctx); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done, m := make(chan error, 1), v.m
	go func() { done <- p.use(inner, func(db *store.Cell) error { return do(inner, db, m) }) }()
	tick := time.NewTicker(v.takeOver / extendWhen)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if err := v.extend(ctx); errors.Is(err, errLost) {
				cancel()
				<-done
				return err
			}
		}
	}
}

// plan divides the slots into parts of about partRows rows.
func (v *mover) plan(ctx context.Context) (parts [][]int, err error) {
	keys := ofKeys(v.m.Slots)
	if tasks := v.m.Slots[len(keys):]; len(tasks) > 0 {
		parts = append(parts, tasks) // first, so that an order for the slots of keys that are left is enough after a failure
	}
	var part []int
	sum := 0
	for some := range slices.Chunk(keys, weighAtOnce) {
		if err := v.extend(ctx); err != nil {
			return nil, err
		}
		rows, err := use(ctx, v.from, func(db *store.Cell) ([]int, error) { return db.Moves.Weigh(ctx, some, v.partRows) })
		if err != nil {
			return nil, err
		}
		for i, slot := range some {
			if len(part) > 0 && sum+rows[i] > v.partRows {
				parts, part, sum = append(parts, part), nil, 0
			}
			part, sum = append(part, slot), sum+rows[i]
		}
	}
	return append(parts, part), nil
}

// moveParts moves all parts. What follows the switch of the last one is left to finish.
func (v *mover) moveParts(ctx context.Context) error {
	parts, err := v.plan(ctx)
	if err != nil {
		return err
	}
	for i, slots := range parts {
		number, over := i, v.m.Over
		if i > 0 {
			if err := v.sweep(ctx); err != nil {
				return err
			}
			over += len(ofKeys(v.m.Slots))
			if ofTasks(parts[0]) {
				number-- // only parts with keys have numbers
			}
		}
		if err := v.update(ctx, func(_ *Chart, m *Move) {
			m.Step = Copying
			m.Slots = slots
			m.Rest = slices.Concat(parts[i+1:]...)
			m.Over = over
			m.Part = number
		}); err != nil {
			return err
		}
		if err := v.to.use(ctx, func(db *store.Cell) error { return db.Moves.Arrive(ctx, v.m.mark(), v.m.Slots) }); err != nil {
			return err
		}
		move := v.keys
		if ofTasks(slots) {
			move = v.tasks
		}
		if err := move(ctx); err != nil {
			return err
		}
	}
	return nil
}

// keys moves a part with slots of keys, until they work at the target.
func (v *mover) keys(ctx context.Context) error {
	now, err := use(ctx, v.from, func(db *store.Cell) (int64, error) { return db.Enrolment.Now(ctx) })
	if err != nil {
		return err
	}
	// Ids are many and never change. So most are copied before anything stops, those of later parts too.
	if err := v.copy(ctx, store.CellEvents, slices.Concat(v.m.Slots, v.m.Rest), v.known); err != nil {
		return err
	}
	v.known = now - lateIDs.Microseconds()
	if err := v.step(ctx, Freezing); err != nil {
		return err
	}
	began := time.Now()
	defer func() { v.stood(began) }()
	if err := v.freeze(ctx); err != nil {
		return err
	}
	for _, what := range []store.CellPart{store.CellEvents, store.CellKeys, store.CellRuns, store.CellOutbox} {
		if err := v.copy(ctx, what, v.m.Slots, v.known); err != nil {
			return err
		}
	}
	last, err := use(ctx, v.from, func(db *store.Cell) (int64, error) { return db.Enrolment.Last(ctx) })
	if err != nil {
		return err
	}
	if err := v.give(ctx, last); err != nil {
		return err
	}
	return v.open(ctx)
}

// step notes how far the part is.
func (v *mover) step(ctx context.Context, step MoveStep) error {
	return v.update(ctx, func(_ *Chart, m *Move) { m.Step = step })
}

// give is the switch: the slots of the part belong to the target.
func (v *mover) give(ctx context.Context, last int64) error {
	return v.update(ctx, func(c *Chart, m *Move) {
		m.Step, m.After = Switched, last
		c.give(m.Slots, m.To)
	})
}

// stood notes for how long a part has stopped. The longest time counts.
func (v *mover) stood(began time.Time) {
	v.frozen.Store(max(v.frozen.Load(), time.Since(began).Microseconds()))
}

// freeze stops the slots at the source, and waits for runs in flight.
func (v *mover) freeze(ctx context.Context) error {
	backoff := clock.Backoff{First: freezeTry, Most: freezeRest}
	for began := time.Now(); ; {
		left := 0
		err := v.during(ctx, v.from, func(ctx context.Context, db *store.Cell, m Move) (err error) {
			left, err = db.Moves.Freeze(ctx, m.mark(), m.Slots)
			return err
		})
		switch late := time.Since(began) > v.wait; {
		case err == nil && left == 0:
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, errLost), err != nil && late:
			return err
		case late:
			return fmt.Errorf("%d runs of the slots were still under way after %s; move the slots when there are fewer long calls, or wait longer",
				left, v.wait)
		}
		if !backoff.Pause(ctx) {
			return ctx.Err()
		}
	}
}

// copy copies rows of one kind to the target. Of ids, it copies those accepted since a time.
func (v *mover) copy(ctx context.Context, what store.CellPart, slots []int, since int64) error {
	cursor := ""
	for {
		if err := v.extend(ctx); err != nil {
			return err
		}
		var rows []byte
		err := v.from.use(ctx, func(db *store.Cell) (err error) {
			rows, cursor, err = db.Moves.Export(ctx, what, slots, since, cursor)
			return err
		})
		if err == nil {
			err = v.to.use(ctx, func(db *store.Cell) error { return db.Moves.Import(ctx, v.m.mark(), what, rows) })
		}
		if err != nil {
			return err
		}
		var all []json.RawMessage
		if err := json.Unmarshal(rows, &all); err != nil {
			return fmt.Errorf("export %s: %w", what, err)
		}
		if v.rows.Add(int64(len(all))); cursor == "" {
			return nil
		}
	}
}

// open lets the slots of a part work at the target, after the switch.
func (v *mover) open(ctx context.Context) error {
	if v.m.Step != Switched {
		return nil
	}
	if ofTasks(v.m.Slots) {
		if err := v.sendTasks(ctx, nil); err != nil {
			return err
		}
	}
	if err := v.during(ctx, v.to, func(ctx context.Context, db *store.Cell, m Move) error {
		return db.Moves.Open(ctx, m.mark(), m.After)
	}); err != nil {
		return err
	}
	return v.step(ctx, Opened)
}

// sweep opens the slots of a part at the target, unless they are open, and deletes them at the source.
func (v *mover) sweep(ctx context.Context) error {
	if err := v.open(ctx); err != nil {
		return err
	}
	for more := true; more; {
		if err := v.extend(ctx); err != nil {
			return err
		}
		var err error
		more, err = use(ctx, v.from, func(db *store.Cell) (bool, error) { return db.Moves.Drop(ctx, v.m.mark(), v.m.Slots) })
		if err != nil {
			return err
		}
	}
	return nil
}

// finish does everything after the switch of a part, which becomes the last one.
func (v *mover) finish(ctx context.Context) error {
	if err := v.sweep(ctx); err != nil {
		return err
	}
	if len(v.m.Rest) > 0 {
		return v.end(ctx, "it was left in its midst; give the order again for the rest")
	}
	return v.end(ctx, "")
}

// undo lets the slots of the current part work at the source again. Earlier parts stay at the target.
func (v *mover) undo(ctx context.Context, why string) error {
	if err := v.update(ctx, func(_ *Chart, m *Move) {
		if !m.Step.has() {
			m.Step = Undoing
		}
	}); err != nil {
		return err
	}
	if v.m.Step != Undoing {
		return v.finish(ctx) // the switch was made, and only its answer was lost
	}
	for _, p := range []*part{v.from, v.to} {
		if err := v.during(ctx, p, func(ctx context.Context, db *store.Cell, m Move) error { return db.Moves.Thaw(ctx, m.mark()) }); err != nil {
			return err
		}
	}
	return v.end(ctx, why)
}

// end takes the move out of the map.
func (v *mover) end(ctx context.Context, why string) error {
	return v.update(ctx, func(c *Chart, m *Move) {
		done, ended := m.view(), m.Until.Add(-v.takeOver)
		done.Ended, done.Rows, done.FrozenS = &ended, v.rows.Load(), float64(v.frozen.Load())/1e6
		delete(c.Moves, m.ID)
		done.Step = "moved"
		if why == "" {
			c.Ended.Moved++
		} else {
			c.Ended.Undone++
			done.Step, done.Error = "undone", why
			if done.Moved > 0 {
				done.Error = fmt.Sprintf("%d of %d slots have moved, and no more: %s", done.Moved, done.Slots, why)
			}
		}
		c.Done = append(c.Done, done)
		c.Done = c.Done[max(0, len(c.Done)-doneKept):]
	})
}

// tasks moves a part with slots of tasks. Tasks work wherever they are. Only two things stop: claims with a bound for each key, and
// puts of tasks with unique names.
func (v *mover) tasks(ctx context.Context) error {
	if err := v.step(ctx, Freezing); err != nil {
		return err
	}
	first, err := v.seek(ctx) // before anything stops
	if err != nil {
		return err
	}
	began := time.Now()
	if err := v.freeze(ctx); err != nil {
		return err
	}
	// No task has gone yet. From here on, every process that finds the move ends it.
	if err := v.give(ctx, 0); err != nil {
		return err
	}
	v.began = began
	if err := v.sendTasks(ctx, first); err != nil {
		return err
	}
	return v.open(ctx)
}

// seek finds tasks that nobody has taken, as parcels.
func (v *mover) seek(ctx context.Context) ([][]int64, error) {
	return use(ctx, v.from, func(db *store.Cell) ([][]int64, error) { return db.Shared.SeekTasks(ctx, v.m.Slots) })
}

// sendTasks sends all tasks of the slots to the target: those that workers have taken, then the parcels that were found before, then
// the others.
func (v *mover) sendTasks(ctx context.Context, found [][]int64) error {
	if len(found) == 0 {
		found = [][]int64{nil} // only those that are taken
	}
	for taken := true; len(found) > 0; {
		for _, ids := range found {
			if err := v.from.use(ctx, func(db *store.Cell) error {
				p, err := db.Shared.PackTasks(ctx, v.m.mark(), v.m.To, v.m.Slots, ids, taken)
				if err != nil || p.ID == "" {
					return err
				}
				return v.hand(ctx, db, p)
			}); err != nil {
				return err
			}
			if !v.began.IsZero() {
				v.stood(v.began)
			}
			v.began, taken = time.Time{}, false
			v.rows.Add(int64(len(ids)))
			if err := v.extend(ctx); err != nil {
				return err
			}
		}
		var err error
		if found, err = v.seek(ctx); err != nil {
			return err
		}
	}
	return v.deliver(ctx, v.from) // the parcels of a process that has died
}

// hand takes a parcel from a cell to its target.
func (s *directory) hand(ctx context.Context, from *store.Cell, p store.TaskParcel) error {
	if err := s.named[p.Target].use(ctx, func(db *store.Cell) error { return db.Shared.UnpackTasks(ctx, p) }); err != nil {
		return err
	}
	return from.Shared.ForgetParcel(ctx, p.ID)
}

// deliver takes the parcels of a cell to their targets. Several processes may do so at once.
func (s *directory) deliver(ctx context.Context, p *part) error {
	return p.use(ctx, func(db *store.Cell) error {
		for {
			parcels, err := db.Shared.Parcels(ctx)
			if err != nil || len(parcels) == 0 {
				return err
			}
			var failed []error // these do not hold up the others
			for _, parcel := range parcels {
				if err := s.hand(ctx, db, parcel); err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) > 0 {
				return errors.Join(failed...)
			}
		}
	})
}
