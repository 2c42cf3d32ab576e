package cells

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// The times of a move.
const (
	takeOver = 15 * time.Second // after it, another process takes over the move of a silent one
	endTries = 5 * time.Minute  // for ending the move of another process

	// defaultWait is how long a move waits for runs in flight, while its slots accept nothing.
	defaultWait = 10 * time.Second
	maxWait     = 5 * time.Minute
)

// Moves begins moves, and takes over the moves of dead processes.
type moves struct {
	*directory
	takeOver time.Duration
	partRows int

	mu     sync.Mutex        // guards movers
	movers map[string]*mover // the moves that this process makes, by id
}

// errLost reports that another process has taken over a move.
var errLost = errors.New("another node has taken the move over")

func orderf(format string, args ...any) error {
	return &inbox.OrderError{Message: fmt.Sprintf(format, args...)}
}

// checkOrder returns what is wrong with an order, and which cell has the slots.
func (s *moves) checkOrder(c *Chart, o inbox.Order) (from string, err error) {
	if _, ok := c.Cells[o.To]; !ok {
		return "", orderf("the inbox has no cell %q; it has %v", o.To, slices.Sorted(maps.Keys(c.Cells)))
	}
	if len(o.Slots) == 0 {
		return "", orderf("want slots to move, have none")
	}
	if o.Wait < 0 || o.Wait > maxWait {
		return "", orderf("wait: want up to %s, have %s", maxWait, o.Wait)
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

// enter writes a move into the map. An order of an actor without a name is not audited.
func (s *moves) enter(ctx context.Context, o inbox.Order, by store.Actor) (m Move, err error) {
	slices.Sort(o.Slots)
	o.Slots = slices.Compact(o.Slots)
	err = s.change(ctx, func(c *Chart) (audits []store.Audited, err error) {
		from, err := s.checkOrder(c, o)
		if err != nil {
			return nil, err
		}
		now, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		slots := o.Slots
		if s.queues() {
			slots = c.withTasks(slots, from)
		}
		m = Move{
			ID: uuid.NewString(), From: from, To: o.To, Slots: slots, Step: Copying, Owner: uuid.NewString(),
			By: by.Name, Reason: by.Reason, Begun: now, Until: now.Add(s.takeOver),
		}
		entered := m
		c.Moves[m.ID] = &entered
		if by.Name != "" {
			at := func(cell string) []byte { return model.EncodeJSON(map[string]any{"cell": cell, "slots": len(o.Slots)}) }
			audits = []store.Audited{{Kind: store.AuditInbox, Name: m.ID, By: by, Before: at(m.From), After: at(m.To)}}
		}
		return audits, nil
	})
	return m, err
}

// MoveSlots implements [inbox.Cells].
func (s *moves) MoveSlots(ctx context.Context, o inbox.Order, by store.Actor, dry bool) (inbox.Move, error) {
	if dry {
		c, err := s.refresh(ctx)
		if err != nil {
			return inbox.Move{}, err
		}
		from, err := s.checkOrder(c, o)
		now, again := s.now(ctx)
		return inbox.Move{From: from, To: o.To, Slots: len(o.Slots), Step: "planned", By: by.Name, Reason: by.Reason, Begun: now},
			cmp.Or(err, again)
	}
	m, err := s.enter(ctx, o, by)
	if err != nil {
		return inbox.Move{}, err
	}
	s.helpers.Go(func() { s.carry(m, cmp.Or(o.Wait, defaultWait)) })
	return m.view(), nil
}

// mover begins to make a move, until done is called.
func (s *moves) mover(m Move, wait time.Duration) (v *mover, done func()) {
	v = &mover{
		moves: s, m: m, from: s.named[m.From], to: s.named[m.To], wait: wait, homeTime: m.Until.Add(-s.takeOver), local: time.Now(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.movers[m.ID] = v
	return v, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.movers, m.ID)
	}
}

// carry makes a move. If it fails, slots that have not moved yet work at the source again.
func (s *moves) carry(m Move, wait time.Duration) {
	v, done := s.mover(m, wait)
	defer done()
	log := s.log.With("move", m.ID, "from", m.From, "to", m.To, "slots", m.view().Slots)
	log.Info("slots of the inbox begin to move")
	err := v.moveParts(s.ctx)
	if err != nil && s.ctx.Err() != nil {
		return // another node undoes it, or ends it
	}
	if err != nil {
		log.Warn("slots of the inbox have not moved", "error", err, "moved_before", v.m.Over)
		err = v.undo(s.ctx, err.Error())
	} else if err = v.finish(s.ctx); err == nil {
		log.Info("slots of the inbox have moved", "rows", v.rows.Load(), "frozen", time.Duration(v.frozen.Load())*time.Microsecond)
	}
	if err != nil {
		log.Warn("move cannot be ended yet", "error", err)
	}
}

// recover takes over the moves of silent processes, and opens the slots that a move froze after it had been taken over.
func (s *moves) recover(c *Chart) {
	for id := range c.Moves {
		s.recoverMove(id)
	}
	for _, p := range s.parts {
		if err := s.thawStrays(p); err != nil && !errors.Is(err, store.ErrAway) && s.ctx.Err() == nil {
			s.log.Warn("slots of a cell cannot be looked after, trying again", "cell", p.name, "error", err)
		}
	}
}

func (s *moves) recoverMove(id string) {
	s.mu.Lock()
	_, mine := s.movers[id]
	s.mu.Unlock()
	if mine {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, probeLong)
	defer cancel()
	var m Move
	err := s.change(ctx, func(c *Chart) ([]store.Audited, error) {
		now, err := s.now(ctx)
		if err != nil {
			return nil, err
		}
		if c.Moves[id] == nil || now.Before(c.Moves[id].Until) || ofTasks(c.Moves[id].Slots) && !s.queues() {
			return nil, errLost
		}
		c.Moves[id].Owner, c.Moves[id].Until = uuid.NewString(), now.Add(s.takeOver)
		m = *c.Moves[id]
		return nil, nil
	})
	if err != nil {
		return // somebody was faster, or the next look does it
	}
	v, done := s.mover(m, 0)
	s.helpers.Go(func() { // the caller follows the map, and must not wait for a cell
		defer done()
		s.log.Warn("a move of slots was left alone and is taken over", "move", m.ID, "step", m.Step)
		ctx, cancel := context.WithTimeout(s.ctx, endTries)
		defer cancel()
		end := func() error { return v.undo(ctx, "the node that made the move was not heard of any more") }
		if m.Step.has() {
			end = func() error { return v.finish(ctx) }
		}
		if err := end(); err != nil && s.ctx.Err() == nil {
			s.log.Warn("move cannot be ended yet, trying again", "move", m.ID, "error", err)
		}
	})
}

// thawStrays opens the slots of moves that are not in the map.
func (s *moves) thawStrays(p *part) error {
	slots, err := use(s.ctx, p, func(db *store.Cell) ([]store.CellSlot, error) { return db.Moves.Slots(s.ctx) })
	slots = slices.DeleteFunc(slots, func(slot store.CellSlot) bool { return slot.State == store.SlotOpen })
	if err != nil || len(slots) == 0 {
		return err
	}
	c, err := s.readMap(s.ctx) // after the slots, since a move is in the map first
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, m := range c.Moves {
		known[m.mark()] = true
	}
	for _, slot := range slots {
		if !known[slot.Move] {
			known[slot.Move] = true // thaws all slots of the move
			err = errors.Join(err, p.use(s.ctx, func(db *store.Cell) error { return db.Moves.Thaw(s.ctx, slot.Move) }))
		}
	}
	return err
}
