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

	"procaas/engine"
)

// The times of a move.
const (
	takeOver   = 15 * time.Second     // after which another node takes a silent one's move over
	extendWhen = 3                    // less than two parts of so many of it are left
	freezeTry  = 5 * time.Millisecond // then ever longer, up to freezeRest: who freezes holds up all of the cell
	freezeRest = 100 * time.Millisecond
	lateIDs    = time.Minute // no transaction that stores ids is older
	moveTries  = 60 * time.Second

	// DefaultWait is how long a move waits for runs under way, while nothing of the slots is taken in.
	DefaultWait = 10 * time.Second
	MaxWait     = 5 * time.Minute
)

// An Order asks for a move.
type Order struct {
	Slots []int
	To    string
	Wait  time.Duration // for runs that nodes own, with the slots frozen; DefaultWait when 0
	By    engine.Actor  // one without a name is this program, and not audited
}

func orderf(format string, args ...any) error {
	return &engine.InboxOrderError{Message: fmt.Sprintf(format, args...)}
}

// errLost says that somebody else has taken a move over.
var errLost = errors.New("another node has taken the move over")

// A mover is a move that this process makes.
type mover struct {
	rows   atomic.Int64 // copied
	frozen atomic.Int64 // for so many microseconds nothing was taken in
}

// checkOrder tells what is wrong with an order, and which cell has the slots.
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
		if slot < 0 || slot >= engine.InboxSlots {
			return "", orderf("want slots of 0 to %d, have %d", engine.InboxSlots-1, slot)
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
		var audits []engine.Audited
		if o.By.Name != "" {
			audits = append(audits, m.audited(o.By))
		}
		err = s.writeMap(ctx, c, 0, audits)
		if errors.Is(err, engine.ErrConflict) {
			continue
		}
		return m, err
	}
}

// audited makes the record of an order.
func (m *Move) audited(by engine.Actor) engine.Audited {
	from, _ := json.Marshal(map[string]any{"cell": m.From, "slots": len(m.Slots)}) // plain data always encodes
	to, _ := json.Marshal(map[string]any{"cell": m.To, "slots": len(m.Slots)})
	return engine.Audited{Kind: engine.AuditInbox, Name: m.ID, By: by, Before: from, After: to}
}

// now gives the time of the home.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	micros, err := s.home.Now(ctx)
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
	if mine == nil || mine.Owner != m.Owner {
		return errLost
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	mine.Until = now.Add(s.takeOver)
	change(c, mine)
	if err := s.writeMap(ctx, c, 0, nil); err != nil {
		return err
	}
	m.Step, m.Until = mine.Step, mine.Until
	if _, err := s.refresh(ctx); err != nil {
		s.log.Warn("map of the inbox is written and cannot be read, trying again", "error", err)
	}
	return nil
}

// carry makes a move. When it cannot, the move is undone.
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
	log := s.log.With("move", m.ID, "from", m.From, "to", m.To, "slots", len(m.Slots))
	log.Info("slots of the inbox begin to move")
	err := s.toSwitch(s.ctx, m, w, wait)
	if err != nil && s.ctx.Err() != nil {
		return // another node undoes it, or ends it
	}
	if err != nil {
		log.Warn("slots of the inbox have not moved", "error", err)
		if err := s.undo(s.ctx, m, err.Error()); err != nil {
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

// toSwitch does all until the slots are the target's.
func (s *Store) toSwitch(ctx context.Context, m *Move, w *mover, wait time.Duration) error {
	from, err := s.named[m.From].cell()
	if err != nil {
		return err
	}
	to, err := s.named[m.To].cell()
	if err != nil {
		return err
	}
	began, err := from.Now(ctx)
	if err != nil {
		return err
	}
	if err := to.Arrive(ctx, m.ID, m.Slots); err != nil {
		return err
	}
	// Ids are many and never change: most are there before anything stands still.
	if err := s.copy(ctx, m, w, from, to, engine.CellEvents, 0); err != nil {
		return err
	}
	if err := s.update(ctx, m, func(_ *Chart, m *Move) { m.Step = Freezing }); err != nil {
		return err
	}
	frozen := time.Now()
	defer func() { w.frozen.Store(time.Since(frozen).Microseconds()) }()
	if err := s.freeze(ctx, from, m, wait); err != nil {
		return err
	}
	if err := s.copy(ctx, m, w, from, to, engine.CellEvents, began-lateIDs.Microseconds()); err != nil {
		return err
	}
	for _, what := range []engine.CellPart{engine.CellKeys, engine.CellRuns, engine.CellOutbox} {
		if err := s.copy(ctx, m, w, from, to, what, 0); err != nil {
			return err
		}
	}
	last, err := from.Last(ctx)
	if err != nil {
		return err
	}
	if err := s.update(ctx, m, func(c *Chart, m *Move) {
		m.Step, m.After = Switched, last
		c.give(m.Slots, m.To)
	}); err != nil {
		return err
	}
	m.After = last
	return to.Open(ctx, m.ID, last)
}

// freeze stops the slots at the source, and waits for runs that nodes own.
func (s *Store) freeze(ctx context.Context, from engine.Cell, m *Move, wait time.Duration) error {
	pause := freezeTry
	for began := time.Now(); ; pause = min(2*pause, freezeRest) {
		if err := s.extend(ctx, m); err != nil {
			return err
		}
		left, err := from.Freeze(ctx, m.ID, m.Slots)
		switch {
		case errors.Is(err, engine.ErrConflict):
			return err
		case err == nil && left == 0:
			return nil
		case time.Since(began) > wait && err != nil:
			return err
		case time.Since(began) > wait:
			return fmt.Errorf("%d runs of the slots were still under way after %s; move the slots when there are fewer long calls, or wait longer", left, wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// copy takes one part of what the keys have to the target.
func (s *Store) copy(ctx context.Context, m *Move, w *mover, from, to engine.Cell, what engine.CellPart, since int64) error {
	cursor := ""
	for {
		if err := s.extend(ctx, m); err != nil {
			return err
		}
		rows, next, err := from.Export(ctx, what, m.Slots, since, cursor)
		if err != nil {
			return err
		}
		if err := to.Import(ctx, m.ID, what, rows); err != nil {
			return err
		}
		var all []json.RawMessage
		if err := json.Unmarshal(rows, &all); err != nil {
			return fmt.Errorf("export %s: %w", what, err)
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

// undo lets the slots work at the source again.
func (s *Store) undo(ctx context.Context, m *Move, why string) error {
	if err := s.update(ctx, m, func(_ *Chart, m *Move) {
		if m.Step != Switched && m.Step != Opened {
			m.Step = Undoing
		}
	}); err != nil {
		return err
	}
	if m.Step != Undoing {
		return s.finish(ctx, m, &mover{}) // the switch was made, and only its answer was lost
	}
	for _, name := range []string{m.From, m.To} {
		store, err := s.named[name].cell()
		if err != nil {
			return err
		}
		if err := store.Thaw(ctx, m.ID); err != nil {
			return s.named[name].heed(ctx, err)
		}
	}
	return s.end(ctx, m, &mover{}, why)
}

// finish does all after the switch.
func (s *Store) finish(ctx context.Context, m *Move, w *mover) error {
	to, err := s.named[m.To].cell()
	if err != nil {
		return err
	}
	if m.Step == Switched {
		if err := to.Open(ctx, m.ID, m.After); err != nil {
			return s.named[m.To].heed(ctx, err)
		}
		if err := s.update(ctx, m, func(_ *Chart, m *Move) { m.Step = Opened }); err != nil {
			return err
		}
	}
	from, err := s.named[m.From].cell()
	if err != nil {
		return err
	}
	for more := true; more; {
		if err := s.extend(ctx, m); err != nil {
			return err
		}
		if more, err = from.Drop(ctx, m.ID, m.Slots); err != nil {
			return s.named[m.From].heed(ctx, err)
		}
	}
	return s.end(ctx, m, w, "")
}

// end takes a move out of the map.
func (s *Store) end(ctx context.Context, m *Move, w *mover, why string) error {
	return s.update(ctx, m, func(c *Chart, m *Move) {
		delete(c.Moves, m.ID)
		c.Done = append(c.Done, Done{
			ID: m.ID, From: m.From, To: m.To, Slots: len(m.Slots), By: m.By, Reason: m.Reason, Begun: m.Begun, Ended: m.Until.Add(-s.takeOver),
			Rows: w.rows.Load(), Frozen: float64(w.frozen.Load()) / 1e6, Error: why,
		})
		c.Done = c.Done[max(0, len(c.Done)-doneKept):]
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
	ctx, cancel := context.WithTimeout(s.ctx, takeOver)
	defer cancel()
	s.mu.Lock()
	_, mine := s.movers[id]
	s.mu.Unlock()
	now, err := s.now(ctx)
	if mine || err != nil || now.Before(c.Moves[id].Until) {
		return
	}
	c = c.copy()
	m := c.Moves[id]
	m.Owner, m.Until = uuid.NewString(), now.Add(s.takeOver)
	if err := s.writeMap(ctx, c, 0, nil); err != nil {
		return // somebody was faster, or the next look does it
	}
	s.log.Warn("a move of slots was left alone and is taken over", "move", id, "step", m.Step)
	if m.Step == Switched || m.Step == Opened {
		err = s.finish(ctx, m, &mover{})
	} else {
		err = s.undo(ctx, m, "the node that made the move was not heard of any more")
	}
	if err != nil {
		s.log.Warn("move cannot be ended yet, trying again", "move", id, "error", err)
	}
}

// thawStrays opens the slots of moves that the map does not know.
func (s *Store) thawStrays(p *part) error {
	store, err := p.cell()
	if err != nil {
		return nil // it is told elsewhere
	}
	slots, err := store.Slots(s.ctx)
	if err != nil {
		return p.heed(s.ctx, err)
	}
	strays := map[string]bool{}
	for _, slot := range slots {
		if slot.State != engine.SlotOpen {
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
	for move := range strays {
		if c.Moves[move] != nil {
			continue
		}
		if err := store.Thaw(s.ctx, move); err != nil {
			return p.heed(s.ctx, err)
		}
	}
	return nil
}
