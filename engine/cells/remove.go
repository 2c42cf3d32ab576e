package cells

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"procaas/engine/store"
)

// A cell that is removed for good leaves its number behind: positions in checkpoints and
// revisions of audit records hold it, so no later cell may have it.

// errRemoved says why nothing is asked of a cell any more.
var errRemoved = errors.New("it was removed from the inbox")

// numbers is how many numbers of cells have been given out; the next one has that number.
func (c *Chart) numbers() int { return len(c.Cells) + len(c.Gone) }

// retire lets a part rest whose cell the map does not have any more.
func (p *part) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired, p.away = true, errRemoved
}

// isRetired reports whether the cell was removed.
func (p *part) isRetired() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.retired
}

// live returns the parts whose cells the inbox has, by number.
func (s *Store) live() []*part {
	return slices.DeleteFunc(slices.Clone(s.parts), (*part).isRetired)
}

// RemoveCell implements [inbox.Cells].
func (s *Store) RemoveCell(ctx context.Context, name string, forget bool, by store.Actor) error {
	for {
		c, err := s.refresh(ctx)
		if err != nil {
			return err
		}
		if err := s.checkRemoval(ctx, c, name, forget); err != nil {
			return err
		}
		c = c.copy()
		before, err := json.Marshal(map[string]any{"cell": name, "number": c.Cells[name]})
		if err != nil {
			return err
		}
		if c.Gone == nil {
			c.Gone = map[string]int{}
		}
		c.Gone[name] = c.Cells[name]
		delete(c.Cells, name)
		// It builds on the map that was checked: a move to the cell that began since then
		// has written another one.
		err = s.writeMap(ctx, c, []store.Audited{{
			Kind: store.AuditInbox, Name: name, By: by, Before: before,
			After: store.AuditRemoved(),
		}})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err == nil {
			_, err = s.refresh(ctx)
		}
		return err
	}
}

// checkRemoval tells what keeps a cell in the inbox.
func (s *Store) checkRemoval(ctx context.Context, c *Chart, name string, forget bool) error {
	if _, ok := c.Cells[name]; !ok {
		return orderf("the inbox has no cell %q; it has %v", name, slices.Sorted(maps.Keys(c.Cells)))
	}
	if name == Home {
		return orderf("the home has the map and all that is not of runs: it stays")
	}
	for _, m := range c.Moves {
		if m.From == name || m.To == name {
			return orderf("move %s of slots from %s to %s has not ended: wait for it", m.ID, m.From, m.To)
		}
	}
	if n := len(c.SlotsOf(name)); n > 0 {
		return orderf("cell %s has %d slots of keys: move them first (procaas inbox drain %s)", name, n, name)
	} else if n := len(c.allOf(name)); n > 0 {
		return orderf("cell %s has %d slots of tasks: move slots of keys to it and away again", name, n)
	}
	p := s.named[name]
	db, err := p.cell()
	if err == nil {
		err = checkEmpty(ctx, name, db, forget)
	}
	if err = p.heed(ctx, err); errors.Is(err, store.ErrAway) && forget {
		return nil // it has no slots, so that all that it can have is over
	} else if errors.Is(err, store.ErrAway) {
		return orderf("cell %s cannot be reached, so that nobody can tell what it has left: try again when it can be, or say that this is to "+
			"be forgotten (--forget): %v", name, err)
	}
	return err
}

// checkEmpty tells what a cell that has no slots has left.
func checkEmpty(ctx context.Context, name string, db *store.Cell, forget bool) error {
	slots, err := db.Moves.Slots(ctx)
	if err != nil {
		return err
	}
	if len(slots) > 0 {
		return orderf("cell %s has %d slots of a move that is being undone: try again in some seconds", name, len(slots))
	}
	l, err := db.Enrolment.Load(ctx)
	if err != nil {
		return err
	}
	if l.Outbox > 0 {
		return orderf("cell %s has %d events for other cells, the first for %s: wait until they have gone", name, l.Outbox,
			l.Oldest.Truncate(1e9))
	}
	for _, f := range []struct {
		live bool
		what string
	}{{true, "that have not ended for good: retry or cancel them"}, {false, "that have ended, and that nobody could read any more: wait " +
		"until they are trimmed, or say that they are to be forgotten (--forget)"}} {
		if !f.live && forget {
			continue
		}
		runs, _, err := db.Runs.List(ctx, store.RunFilter{Live: f.live, Limit: 1})
		if err != nil {
			return err
		}
		if len(runs) > 0 {
			return orderf("cell %s has runs, such as %s, %s", name, runs[0].ID, f.what)
		}
	}
	tasks, err := db.Tasks.Admin.TaskStats(ctx)
	for _, t := range tasks {
		if n := t.Ready + t.Waiting + t.Starting + t.Running + t.Scheduled; n > 0 {
			return orderf("cell %s has %d tasks of the type %s: wait until workers have done them, or cancel them", name, n, t.Type)
		} else if t.Failed > 0 && !forget {
			return orderf("cell %s has %d dead letters of the type %s: retry them, or say that they are to be forgotten (--forget)",
				name, t.Failed, t.Type)
		}
	}
	return err
}

// retireGone lets the parts rest whose cells a map does not have any more.
func (s *Store) retireGone(c *Chart) {
	for _, p := range s.parts {
		if _, ok := c.Cells[p.name]; !ok && !p.isRetired() {
			p.retire()
			s.log.Info("cell was removed from the inbox; start the node anew without it when there is time", "cell", p.name)
		}
	}
}
