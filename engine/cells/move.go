package cells

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"procaas/engine/inbox"
	"procaas/engine/store"
)

// The times of a move.
const (
	takeOver   = 15 * time.Second     // after which another node takes a silent one's move over
	extendWhen = 3                    // less than two parts of so many of it are left
	freezeTry  = 5 * time.Millisecond // then ever longer, up to freezeRest: who freezes holds up all of the cell
	freezeRest = 100 * time.Millisecond
	lateIDs    = time.Minute      // no transaction that stores ids is older
	moveTries  = 60 * time.Second // of writing the map
	endTries   = 5 * time.Minute  // of ending another one's move, before it is anybody's again

	// DefaultWait is how long a move waits for runs under way, while nothing of the slots is taken in.
	DefaultWait = 10 * time.Second
	MaxWait     = 5 * time.Minute
)

// An Order asks for a move.
type Order struct {
	Slots []int
	To    string
	Wait  time.Duration // for runs that nodes own, with the slots frozen; DefaultWait when 0
	By    store.Actor   // one without a name is this program, and not audited
}

func orderf(format string, args ...any) error {
	return &inbox.OrderError{Message: fmt.Sprintf(format, args...)}
}

// errLost says that somebody else has taken a move over.
var errLost = errors.New("another node has taken the move over")

// A mover is a move that this process makes.
type mover struct {
	rows   atomic.Int64 // copied
	frozen atomic.Int64 // for so many microseconds nothing was taken in
	began  time.Time    // of the part whose slots stand still
}

// checkOrder returns what is wrong with an order, and which cell has the slots.
func (s *Store) checkOrder(c *Chart, o Order) (from string, err error) {
	if _, ok := c.Cells[o.To]; !ok {
		return "", orderf("the inbox has no cell %q; it has %v", o.To, slices.Sorted(maps.Keys(c.Cells)))
	}
	if len(o.Slots) == 0 {
		return "", orderf("want slots to move, have none")
	}
	if o.Wait < 0 || o.Wait > MaxWait {
		return "", orderf("wait: want up to %s, have %s", MaxWait, o.Wait)
	}
	for _, slot := range o.Slots {
		if slot < 0 || slot >= store.InboxSlots {
			return "", orderf("want slots of 0 to %d, have %d", store.InboxSlots-1, slot)
		}
		if m := c.moving(slot); m != nil {
			return "", orderf("slot %d is on its way from %s to %s by move %s", slot, m.From, m.To, m.ID)
		}
		switch owner := c.Owner(slot); {
		case owner == o.To:
			return "", orderf("slot %d is in cell %s already", slot, o.To)
		case from != "" && from != owner:
			return "", orderf("want slots of one cell in a move, have some of %s and some of %s", from, owner)
		default:
			from = owner
		}
	}
	for _, name := range []string{from, o.To} {
		if _, err := s.named[name].cell(); err != nil {
			return "", orderf("cell %s cannot be reached at present: %v", name, err)
		}
	}
	return from, nil
}

// enter writes a move into the map.
func (s *Store) enter(ctx context.Context, o Order) (*Move, error) {
	for {
		c, err := s.refresh(ctx)
		if err != nil {
			return nil, err
		}
		slots := slices.Compact(slices.Sorted(slices.Values(o.Slots)))
		o.Slots = slots
		from, err := s.checkOrder(c, o)
		if err != nil {
			return nil, err
		}
		slots = c.withTasks(slots, from)
		now, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		c = c.copy()
		m := &Move{
			ID: uuid.NewString(), From: from, To: o.To, Slots: slots, Step: Copying, Owner: uuid.NewString(),
			By: o.By.Name, Reason: o.By.Reason, Begun: now, Until: now.Add(s.takeOver),
		}
		if c.Moves == nil {
			c.Moves = map[string]*Move{}
		}
		c.Moves[m.ID] = m
		var audits []store.Audited
		if o.By.Name != "" {
			audits = append(audits, m.audited(o.By))
		}
		err = s.writeMap(ctx, c, audits)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		return m, err
	}
}

// withTasks adds the slots of tasks that go with slots of keys from a cell.
func (c *Chart) withTasks(slots []int, from string) []int {
	all := slices.Clone(slots)
	for _, slot := range slots {
		if t, ok := taskSlot(slot); ok && c.Owner(t) == from && c.moving(t) == nil {
			all = append(all, t)
		}
	}
	return all
}

// audited makes the record of an order.
func (m *Move) audited(by store.Actor) store.Audited {
	from, _ := json.Marshal(map[string]any{"cell": m.From, "slots": m.all()}) // plain data always encodes
	to, _ := json.Marshal(map[string]any{"cell": m.To, "slots": m.all()})
	return store.Audited{Kind: store.AuditInbox, Name: m.ID, By: by, Before: from, After: to}
}

// now returns the time of the home.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	micros, err := s.home.Enrolment.Now(ctx)
	return time.UnixMicro(micros).UTC(), err
}

// update changes the map for a move that this process owns, until it is known that it
// has. The change may be made already, by a try whose answer was lost.
func (s *Store) update(ctx context.Context, m *Move, change func(*Chart, *Move)) error {
	backoff := freezeTry
	for began := time.Now(); ; {
		err := s.tryUpdate(ctx, m, change)
		if err == nil || errors.Is(err, errLost) || ctx.Err() != nil || time.Since(began) > moveTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, time.Second)
	}
}

func (s *Store) tryUpdate(ctx context.Context, m *Move, change func(*Chart, *Move)) error {
	c, err := s.readMap(ctx)
	if err != nil {
		return err
	}
	mine := c.Moves[m.ID]
	if mine == nil || mine.Owner != m.Owner || mine.Part < m.Part {
		return errLost // or a program that knows of no parts has written the map
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	mine.Until = now.Add(s.takeOver)
	change(c, mine)
	if err := s.writeMap(ctx, c, nil); err != nil {
		return err
	}
	*m = *mine
	if _, err := s.learn(c); err != nil {
		s.log.Warn("map of the inbox cannot be used, trying again", "error", err)
	}
	return nil
}

// carry makes a move. When it cannot, what has not moved yet works at the source again.
func (s *Store) carry(m *Move, wait time.Duration) {
	w := &mover{}
	s.mu.Lock()
	s.movers[m.ID] = w
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.movers, m.ID)
	}()
	log := s.log.With("move", m.ID, "from", m.From, "to", m.To, "slots", m.all())
	log.Info("slots of the inbox begin to move")
	err := s.moveParts(s.ctx, m, w, wait)
	if err != nil && s.ctx.Err() != nil {
		return // another node undoes it, or ends it
	}
	if err != nil {
		log.Warn("slots of the inbox have not moved", "error", err, "moved_before", m.Over)
		if err := s.undo(s.ctx, m, w, err.Error()); err != nil {
			log.Warn("move cannot be undone yet", "error", err)
		}
		return
	}
	if err := s.finish(s.ctx, m, w); err != nil {
		log.Warn("move cannot be ended yet", "error", err)
		return
	}
	log.Info("slots of the inbox have moved", "rows", w.rows.Load(), "frozen", time.Duration(w.frozen.Load())*time.Microsecond)
}

// partRows is how many rows of runs and entities go with one part of a move, unless a
// single slot has more: a part stands still for as long as their way takes.
const partRows = 1000

// weighAtOnce bounds the slots that one question is about.
const weighAtOnce = 128

// plan divides slots into parts of about so many rows.
func (s *Store) plan(ctx context.Context, m *Move, from *store.Cell) (parts [][]int, err error) {
	keys := ofKeys(m.Slots)
	if tasks := m.Slots[len(keys):]; len(tasks) > 0 {
		parts = append(parts, tasks) // first: who gives the order again for the rest gives it for slots of keys
	}
	var part []int
	sum := 0
	for some := range slices.Chunk(keys, weighAtOnce) {
		if err := s.extend(ctx, m); err != nil {
			return nil, err
		}
		rows, err := from.Moves.Weigh(ctx, some, s.partRows)
		if err != nil {
			return nil, err
		}
		for i, slot := range some {
			if len(part) > 0 && sum+rows[i] > s.partRows {
				parts, part, sum = append(parts, part), nil, 0
			}
			part, sum = append(part, slot), sum+rows[i]
		}
	}
	return append(parts, part), nil
}

// moveParts moves all parts but for what is to be done after the switch of the last.
func (s *Store) moveParts(ctx context.Context, m *Move, w *mover, wait time.Duration) error {
	from, err := s.named[m.From].cell()
	if err != nil {
		return err
	}
	to, err := s.named[m.To].cell()
	if err != nil {
		return err
	}
	parts, err := s.plan(ctx, m, from)
	if err != nil {
		return err
	}
	known := int64(0) // ids accepted before this time are at the target
	part := -1
	for i, slots := range parts {
		if part++; i == 1 && ofTasks(parts[0]) {
			part = 0 // those of keys are counted
		}
		over := m.Over
		if i > 0 {
			if err := s.sweep(ctx, m, from, to); err != nil {
				return err
			}
			over += len(ofKeys(parts[i-1]))
		}
		rest := slices.Concat(parts[i+1:]...)
		if err := s.update(ctx, m, func(_ *Chart, m *Move) {
			m.Step, m.Slots, m.Rest, m.Over, m.Part = Copying, slots, rest, over, part
		}); err != nil {
			return err
		}
		if known, err = s.toSwitch(ctx, m, w, leg{from, to, wait, known}); err != nil {
			return err
		}
	}
	return nil
}

// A leg is what the way of a part needs.
type leg struct {
	from, to *store.Cell
	wait     time.Duration
	known    int64 // ids of the source that are older are at the target
}

// toSwitch does all until the slots of a part are the target's. It returns the time up to
// which ids of the source are known there, those of later parts too.
func (s *Store) toSwitch(ctx context.Context, m *Move, w *mover, l leg) (known int64, err error) {
	if err := l.to.Moves.Arrive(ctx, m.mark(), m.Slots); err != nil {
		return 0, err
	}
	if ofTasks(m.Slots) {
		return l.known, s.toSwitchTasks(ctx, m, w, l)
	}
	if known, err = l.from.Enrolment.Now(ctx); err != nil {
		return 0, err
	}
	known -= lateIDs.Microseconds()
	// Ids are many and never change: most are there before anything stands still.
	if err := s.copy(ctx, m, w, l, batch{store.CellEvents, slices.Concat(m.Slots, m.Rest), l.known}); err != nil {
		return 0, err
	}
	if err := s.update(ctx, m, func(_ *Chart, m *Move) { m.Step = Freezing }); err != nil {
		return 0, err
	}
	began := time.Now()
	defer func() { w.stood(time.Since(began)) }()
	if err := s.freeze(ctx, m, l); err != nil {
		return 0, err
	}
	for _, what := range []store.CellPart{store.CellEvents, store.CellKeys, store.CellRuns, store.CellOutbox} {
		if err := s.copy(ctx, m, w, l, batch{what, m.Slots, known}); err != nil {
			return 0, err
		}
	}
	last, err := l.from.Enrolment.Last(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.switchPart(ctx, m, last); err != nil {
		return 0, err
	}
	return known, s.open(ctx, m, l.to)
}

// switchPart makes the slots of a part the target's.
func (s *Store) switchPart(ctx context.Context, m *Move, last int64) error {
	return s.update(ctx, m, func(c *Chart, m *Move) {
		m.Step, m.After = Switched, last
		c.give(m.Slots, m.To)
	})
}

// open lets the slots of a part work at the target, after the switch.
func (s *Store) open(ctx context.Context, m *Move, to *store.Cell) error {
	if m.Step != Switched {
		return nil
	}
	if ofTasks(m.Slots) {
		if err := s.sendTasks(ctx, m, nil, nil); err != nil {
			return err
		}
	}
	mark, after := m.mark(), m.After
	if err := s.during(ctx, m, func(ctx context.Context) error { return to.Moves.Open(ctx, mark, after) }); err != nil {
		return s.named[m.To].heed(ctx, err)
	}
	return s.update(ctx, m, func(_ *Chart, m *Move) { m.Step = Opened })
}

// stood notes for how long a part has stood still; the longest time counts.
func (w *mover) stood(d time.Duration) {
	w.frozen.Store(max(w.frozen.Load(), d.Microseconds()))
}

// freeze stops the slots at the source, and waits for runs that nodes own.
func (s *Store) freeze(ctx context.Context, m *Move, l leg) error {
	pause := freezeTry
	for began := time.Now(); ; pause = min(2*pause, freezeRest) {
		left, mark, slots := 0, m.mark(), m.Slots
		err := s.during(ctx, m, func(ctx context.Context) (err error) {
			left, err = l.from.Moves.Freeze(ctx, mark, slots)
			return err
		})
		switch {
		case errors.Is(err, store.ErrConflict), errors.Is(err, errLost):
			return err
		case err == nil && left == 0:
			return nil
		case time.Since(began) > l.wait && err != nil:
			return err
		case time.Since(began) > l.wait:
			return fmt.Errorf("%d runs of the slots were still under way after %s; move the slots when there are fewer long calls, or wait longer",
				left, l.wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// during does what may take long, and tells the others meanwhile that the move is not
// given up. When somebody has taken it over, it is cut off. Do runs beside this
// goroutine, which writes m: it must not read it.
func (s *Store) during(ctx context.Context, m *Move, do func(context.Context) error) error {
	if err := s.extend(ctx, m); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(inner) }()
	tick := time.NewTicker(s.takeOver / extendWhen)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if err := s.extend(ctx, m); errors.Is(err, errLost) {
				cancel()
				<-done
				return err
			}
		}
	}
}

// A batch is rows of one kind that go together.
type batch struct {
	what  store.CellPart
	slots []int
	since int64 // only of what was accepted since then, see [store.SlotMoves]
}

// copy takes rows to the target.
func (s *Store) copy(ctx context.Context, m *Move, w *mover, l leg, b batch) error {
	cursor := ""
	for {
		if err := s.extend(ctx, m); err != nil {
			return err
		}
		rows, next, err := l.from.Moves.Export(ctx, b.what, b.slots, b.since, cursor)
		if err != nil {
			return err
		}
		if err := l.to.Moves.Import(ctx, m.mark(), b.what, rows); err != nil {
			return err
		}
		var all []json.RawMessage
		if err := json.Unmarshal(rows, &all); err != nil {
			return fmt.Errorf("export %s: %w", b.what, err)
		}
		w.rows.Add(int64(len(all)))
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// extend tells the others that the move is not given up.
func (s *Store) extend(ctx context.Context, m *Move) error {
	now, err := s.now(ctx)
	if err != nil || m.Until.Sub(now) > 2*s.takeOver/extendWhen {
		return err
	}
	return s.update(ctx, m, func(*Chart, *Move) {})
}

// undo lets the slots work at the source again; parts that have moved stay.
func (s *Store) undo(ctx context.Context, m *Move, w *mover, why string) error {
	if err := s.update(ctx, m, func(_ *Chart, m *Move) {
		if m.Step != Switched && m.Step != Opened {
			m.Step = Undoing
		}
	}); err != nil {
		return err
	}
	if m.Step != Undoing {
		return s.finish(ctx, m, w) // the switch was made, and only its answer was lost
	}
	for _, name := range []string{m.From, m.To} {
		store, err := s.named[name].cell()
		if err != nil {
			return err
		}
		mark := m.mark()
		if err := s.during(ctx, m, func(ctx context.Context) error { return store.Moves.Thaw(ctx, mark) }); err != nil {
			return s.named[name].heed(ctx, err)
		}
	}
	return s.end(ctx, m, w, why)
}

// finish does all after the switch of a part, with which the move ends.
func (s *Store) finish(ctx context.Context, m *Move, w *mover) error {
	to, err := s.named[m.To].cell()
	if err != nil {
		return err
	}
	from, err := s.named[m.From].cell()
	if err != nil {
		return err
	}
	if err := s.sweep(ctx, m, from, to); err != nil {
		return err
	}
	why := ""
	if len(m.Rest) > 0 {
		why = "it was left in its midst; give the order again for the rest"
	}
	return s.end(ctx, m, w, why)
}

// sweep opens the slots of a part at the target, unless that was done, and forgets them
// at the source.
func (s *Store) sweep(ctx context.Context, m *Move, from, to *store.Cell) error {
	if err := s.open(ctx, m, to); err != nil {
		return err
	}
	for more := true; more; {
		if err := s.extend(ctx, m); err != nil {
			return err
		}
		var err error
		if more, err = from.Moves.Drop(ctx, m.mark(), m.Slots); err != nil {
			return s.named[m.From].heed(ctx, err)
		}
	}
	return nil
}

// end takes a move out of the map.
func (s *Store) end(ctx context.Context, m *Move, w *mover, why string) error {
	return s.update(ctx, m, func(c *Chart, m *Move) {
		over := m.Over
		if m.Step == Opened {
			over += len(ofKeys(m.Slots))
		}
		text := why
		if why != "" && over > 0 {
			text = fmt.Sprintf("%d of %d slots have moved, and no more: %s", over, m.all(), why)
		}
		delete(c.Moves, m.ID)
		c.Done = append(c.Done, Done{
			ID: m.ID, From: m.From, To: m.To, Slots: m.all(), Over: over, By: m.By, Reason: m.Reason, Begun: m.Begun,
			Ended: m.Until.Add(-s.takeOver),
			Rows:  w.rows.Load(), Frozen: float64(w.frozen.Load()) / 1e6, Error: text,
		})
		c.Done = c.Done[max(0, len(c.Done)-doneKept):]
		if why == "" {
			c.Ended.Moved++
		} else {
			c.Ended.Undone++
		}
	})
}

// recover takes over moves of those who are not heard of any more, and thaws slots that
// no move of the map has frozen: somebody did so whose move was taken over.
func (s *Store) recover(c *Chart) {
	for id := range c.Moves {
		s.recoverMove(c, id)
	}
	for _, p := range s.parts {
		if err := s.thawStrays(p); err != nil && s.ctx.Err() == nil {
			s.log.Warn("slots of a cell cannot be looked after, trying again", "cell", p.name, "error", err)
		}
	}
}

func (s *Store) recoverMove(c *Chart, id string) {
	s.mu.Lock()
	_, mine := s.movers[id]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, probeLong)
	defer cancel()
	now, err := s.now(ctx)
	if mine || err != nil || now.Before(c.Moves[id].Until) {
		return
	}
	c = c.copy()
	m := c.Moves[id]
	m.Owner, m.Until = uuid.NewString(), now.Add(s.takeOver)
	if err := s.writeMap(ctx, c, nil); err != nil {
		return // somebody was faster, or the next look does it
	}
	w := &mover{}
	s.mu.Lock()
	s.movers[id] = w
	s.mu.Unlock()
	// Not here: whoever follows the map must not wait for a cell.
	s.helpers.Go(func() { s.endLeft(m, w) })
}

// endLeft ends a move that another process has begun, and that is this one's now.
func (s *Store) endLeft(m *Move, w *mover) {
	ctx, cancel := context.WithTimeout(s.ctx, endTries)
	defer cancel()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.movers, m.ID)
	}()
	s.log.Warn("a move of slots was left alone and is taken over", "move", m.ID, "step", m.Step)
	var err error
	if m.Step == Switched || m.Step == Opened {
		err = s.finish(ctx, m, w)
	} else {
		err = s.undo(ctx, m, w, "the node that made the move was not heard of any more")
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("move cannot be ended yet, trying again", "move", m.ID, "error", err)
	}
}

// thawStrays opens the slots of moves that the map does not know.
func (s *Store) thawStrays(p *part) error {
	db, err := p.cell()
	if err != nil {
		return nil // it is told elsewhere
	}
	slots, err := db.Moves.Slots(s.ctx)
	if err != nil {
		return p.heed(s.ctx, err)
	}
	known, strays := map[string]bool{}, map[string]bool{}
	for _, slot := range slots {
		if slot.State != store.SlotOpen {
			strays[slot.Move] = true
		}
	}
	if len(strays) == 0 {
		return nil
	}
	c, err := s.readMap(s.ctx) // after the slots: a move is in the map first
	if err != nil {
		return err
	}
	for _, m := range c.Moves {
		known[m.mark()] = true
	}
	for move := range strays {
		if known[move] {
			continue
		}
		if err := db.Moves.Thaw(s.ctx, move); err != nil {
			return p.heed(s.ctx, err)
		}
	}
	return nil
}
