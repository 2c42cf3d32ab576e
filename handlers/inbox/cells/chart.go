package cells

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// The document with the map.
const (
	mapKind = "inbox"
	mapName = "map"
)

// A Chart says which cell has which slot. A writer builds on the version that it has read.
type Chart struct {
	Inbox string           `json:"inbox"`          // the unique name of the inbox
	Cells map[string]int   `json:"cells"`          // the numbers of the cells, by name
	Gone  map[string]int   `json:"gone,omitempty"` // the same of removed cells, whose names and numbers never come back
	Spans []Span           `json:"spans"`          // all slots, in order
	Moves map[string]*Move `json:"moves,omitempty"`
	Done  []inbox.Move     `json:"done,omitempty"` // the last moves that ended, in order
	Ended inbox.Ended      `json:"ended"`          // counts all of them

	Version int64 `json:"-"`
	owner   [chartSlots]string
}

// doneKept is the number of ended moves in the map.
const doneKept = 50

// chartSlots is the number of slots in the map: those of keys, then those of tasks.
const chartSlots = store.InboxSlots + store.TaskSlots

// A Span is slots next to each other in one cell.
type Span struct {
	From int    `json:"from"`
	To   int    `json:"to"` // included
	Cell string `json:"cell"`
}

// A Move is an order to move slots. It moves them in parts, one after the other, so that each part stops for a short time only.
type Move struct {
	ID     string    `json:"id"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Slots  []int     `json:"slots"`          // the current part
	Rest   []int     `json:"rest,omitempty"` // later parts, which work at the source meanwhile
	Over   int       `json:"over,omitempty"` // the number of slots of keys in earlier parts
	Part   int       `json:"part,omitempty"` // the number of the current part
	Step   MoveStep  `json:"step"`
	Owner  string    `json:"owner"` // a token of the process that makes the move; writes with an old token are refused
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Begun  time.Time `json:"begun"`
	Until  time.Time `json:"until"` // after it, another process may take the move over

	// After is the last position of the source. Those of the target follow it.
	After int64 `json:"after,omitempty"`
}

// A MoveStep is the progress of a part of a move. A process that takes the move over undoes a part before the switch, and
// finishes it after the switch.
type MoveStep string

// The steps.
const (
	Copying  MoveStep = "copying"  // the slots work at the source
	Freezing MoveStep = "freezing" // they work nowhere
	Switched MoveStep = "switched" // they belong to the target
	Opened   MoveStep = "opened"   // they work at the target, and the source is cleaned up
	Undoing  MoveStep = "undoing"  // they come back at the source
)

// has reports whether the slots of the current part belong to the target.
func (s MoveStep) has() bool { return s == Switched || s == Opened }

// mark names the current part for the cells. Each part has its own name, so that a late call for an earlier part finds nothing to
// do.
func (m *Move) mark() string {
	switch {
	case ofTasks(m.Slots):
		return m.ID + "/tasks"
	case m.Part == 0:
		return m.ID
	}
	return m.ID + "/" + strconv.Itoa(m.Part)
}

// view describes a move for people. Slots of tasks are not counted.
func (m *Move) view() inbox.Move {
	current := len(ofKeys(m.Slots))
	v := inbox.Move{
		ID: m.ID, From: m.From, To: m.To, Slots: m.Over + current + len(ofKeys(m.Rest)), Moved: m.Over, Step: string(m.Step), By: m.By,
		Reason: m.Reason, Begun: m.Begun,
	}
	if m.Step.has() {
		v.Moved += current
	}
	return v
}

// taskSlot returns the slot of tasks that goes with a slot of keys, if there is one.
func taskSlot(slot int) (int, bool) {
	const each = store.InboxSlots / store.TaskSlots
	return store.InboxSlots + slot/each, slot%each == 0
}

// ofTasks reports whether the slots of a part are slots of tasks. No part has both kinds.
func ofTasks(slots []int) bool { return len(slots) > 0 && slots[0] >= store.InboxSlots }

// ofKeys returns the slots of keys, which come first.
func ofKeys(slots []int) []int {
	at, _ := slices.BinarySearch(slots, store.InboxSlots)
	return slots[:at]
}

// errMap reports that the map is damaged.
var errMap = errors.New("the map of the inbox is damaged")

// newChart gives all slots to the home.
func newChart(name string) *Chart {
	c := &Chart{Inbox: name, Cells: map[string]int{Home: 0}, Gone: map[string]int{}}
	for i := range c.owner {
		c.owner[i] = Home
	}
	c.give(nil, Home)
	return c
}

// readChart reads a document.
func readChart(d store.Document) (*Chart, error) {
	c := &Chart{Version: d.Version, Gone: map[string]int{}, Moves: map[string]*Move{}}
	if err := json.Unmarshal(d.Value, c); err != nil {
		return nil, fmt.Errorf("%w: %w", errMap, err)
	}
	for i := store.InboxSlots; i < chartSlots; i++ {
		c.owner[i] = Home // of tasks, in a map from before they had slots
	}
	for _, s := range c.Spans {
		if s.From < 0 || s.To >= chartSlots || s.From > s.To {
			return nil, fmt.Errorf("%w: span %d-%d", errMap, s.From, s.To)
		}
		for i := s.From; i <= s.To; i++ {
			c.owner[i] = s.Cell
		}
	}
	if at := slices.Index(c.owner[:], ""); at >= 0 {
		return nil, fmt.Errorf("%w: nobody has slot %d", errMap, at)
	}
	for i := range c.Done {
		if d := &c.Done[i]; d.Step == "" { // an earlier version of the program wrote it
			d.Step, d.Moved = "moved", d.Slots
			if d.Error != "" {
				d.Step, d.Moved = "undone", 0
			}
		}
	}
	return c, nil
}

// give makes a cell the owner of slots.
func (c *Chart) give(slots []int, cell string) {
	for _, s := range slots {
		c.owner[s] = cell
	}
	c.Spans = nil
	for i, cell := range c.owner {
		if n := len(c.Spans); n > 0 && c.Spans[n-1].Cell == cell {
			c.Spans[n-1].To = i
			continue
		}
		c.Spans = append(c.Spans, Span{i, i, cell})
	}
}

// numbers is the number of cells that there ever were, and the number of the next one.
func (c *Chart) numbers() int { return len(c.Cells) + len(c.Gone) }

// Owner returns the cell that has a slot.
func (c *Chart) Owner(slot int) string { return c.owner[slot] }

// SlotsOf lists the slots of keys of a cell.
func (c *Chart) SlotsOf(cell string) []int { return ofKeys(c.allOf(cell)) }

// allOf lists the slots of keys of a cell, then those of tasks.
func (c *Chart) allOf(cell string) (slots []int) {
	for i, owner := range c.owner {
		if owner == cell {
			slots = append(slots, i)
		}
	}
	return slots
}

// moving returns the move that a slot takes part in, or nil.
func (c *Chart) moving(slot int) *Move {
	for _, m := range c.Moves {
		if slices.Contains(m.Slots, slot) || slices.Contains(m.Rest, slot) {
			return m
		}
	}
	return nil
}

// movesTasks reports whether tasks move.
func (c *Chart) movesTasks() bool {
	for _, m := range c.Moves {
		if ofTasks(m.Slots) {
			return true
		}
	}
	return false
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
