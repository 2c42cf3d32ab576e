package cells

import (
	"context"
	"errors"
	"maps"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A cell that is removed leaves its number behind. Positions in checkpoints and revisions of audit records have it, so no later cell
// may get it.

// RemoveCell implements [inbox.Cells].
func (s *moves) RemoveCell(ctx context.Context, name string, forget bool, by store.Actor) error {
	// A move to the cell that begins after the check writes another map, and the check is repeated.
	return s.change(ctx, func(c *Chart) ([]store.Audited, error) {
		if err := s.checkRemoval(ctx, c, name, forget); err != nil {
			return nil, err
		}
		number := c.Cells[name]
		c.Gone[name] = number
		delete(c.Cells, name)
		return []store.Audited{{
			Kind: store.AuditInbox, Name: name, By: by, After: store.AuditRemoved(),
			Before: model.EncodeJSON(map[string]any{"cell": name, "number": number}),
		}}, nil
	})
}

// checkRemoval returns what keeps a cell in the inbox.
func (s *moves) checkRemoval(ctx context.Context, c *Chart, name string, forget bool) error {
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
	err := s.named[name].use(ctx, func(db *store.Cell) error { return checkEmpty(ctx, name, db, forget) })
	if errors.Is(err, store.ErrAway) && forget {
		return nil // it has no slots, so everything that it may have has ended
	} else if errors.Is(err, store.ErrAway) {
		return orderf("cell %s cannot be reached, so that nobody can tell what it has left: try again when it can be, or say that this is to "+
			"be forgotten (--forget): %v", name, err)
	}
	return err
}

// checkEmpty returns what a cell without slots has left.
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
	if db.Tasks == nil {
		if forget {
			return nil
		}
		return orderf("cell %s may have tasks, and this node has no queue to tell: ask a node that has one, or say that they are to be "+
			"forgotten (--forget)", name)
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
