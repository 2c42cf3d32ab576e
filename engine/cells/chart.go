package cells

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"procaas/engine/inbox"
	"procaas/engine/store"
)

// The document that holds the map.
const (
	mapKind = "inbox"
	mapName = "map"
)

// A Chart says which cell has which slot. It is a document of the home: whoever changes
// it builds on the version that he has read.
type Chart struct {
	Inbox string           `json:"inbox"`          // tells inboxes apart
	Cells map[string]int   `json:"cells"`          // their numbers, by name
	Gone  map[string]int   `json:"gone,omitempty"` // those of cells that were removed; they do not come again
	Spans []Span           `json:"spans"`          // of slots, in order; every slot is in one
	Moves map[string]*Move `json:"moves,omitempty"`
	Done  []Done           `json:"done,omitempty"` // the last ones that have ended, in order

	Ended inbox.Ended `json:"ended"` // all that have

	Version int64 `json:"-"`
	owner   [chartSlots]string
}

// chartSlots is how many slots the map has: those of keys, and behind them those of tasks.
const chartSlots = store.InboxSlots + store.TaskSlots

// taskSlot returns the slot of tasks that goes with a slot of keys; false for those with which none goes.
func taskSlot(slot int) (int, bool) {
	const each = store.InboxSlots / store.TaskSlots
	return store.InboxSlots + slot/each, slot%each == 0
}

// ofTasks reports whether a part of a move is one of tasks. No part has slots of both kinds.
func ofTasks(slots []int) bool { return len(slots) > 0 && slots[0] >= store.InboxSlots }

// ofKeys returns the slots of keys, which come first.
func ofKeys(slots []int) []int {
	at, _ := slices.BinarySearch(slots, store.InboxSlots)
	return slots[:at]
}

// A Span is slots next to each other that one cell has.
type Span struct {
	From int    `json:"from"`
	To   int    `json:"to"` // included
	Cell string `json:"cell"`
}

// A Move is slots on their way. So that none stands still for longer because there are
// many, they go in parts, one after the other.
type Move struct {
	ID     string    `json:"id"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Slots  []int     `json:"slots"`          // of the part that is on its way
	Rest   []int     `json:"rest,omitempty"` // that follow it, and work at the source meanwhile
	Over   int       `json:"over,omitempty"` // how many have gone before it
	Part   int       `json:"part,omitempty"` // which one it is
	Step   MoveStep  `json:"step"`
	Owner  string    `json:"owner"` // the token of who makes it; another one's word counts no more
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Begun  time.Time `json:"begun"`

	// Until is when somebody else may take the move over: before the switch to undo
	// it, after it to end it.
	Until time.Time `json:"until"`

	// After is the last position of the source; those of the target come behind it.
	After int64 `json:"after,omitempty"`
}

// mark names the present part for the cells. Each part has its own name: an order for an
// earlier one, of which the answer was lost, may be carried out late, and must find
// nothing to do.
func (m *Move) mark() string {
	switch {
	case ofTasks(m.Slots):
		return m.ID + "/tasks"
	case m.Part == 0:
		return m.ID
	}
	return m.ID + "/" + strconv.Itoa(m.Part)
}

// all counts the slots of the order.
func (m *Move) all() int { return m.Over + len(ofKeys(m.Slots)) + len(ofKeys(m.Rest)) }

// A Done is a move that has ended.
type Done struct {
	ID     string    `json:"id"`
	From   string    `json:"from"`
	To     string    `json:"to"`
	Slots  int       `json:"slots"`          // of the order
	Over   int       `json:"over,omitempty"` // of them that stay at the target when the move was undone
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Begun  time.Time `json:"begun"`
	Ended  time.Time `json:"ended"`
	Rows   int64     `json:"rows"`            // copied; 0 when another node has ended the move
	Frozen float64   `json:"frozen_s"`        // for so many seconds, at most, nothing of a slot was taken in
	Error  string    `json:"error,omitempty"` // why the move was undone
}

// doneKept is how many ended moves the map remembers.
const doneKept = 50

// A MoveStep says how far a move is.
type MoveStep string

// The steps of a move.
const (
	Copying  MoveStep = "copying"  // the slots work at the source
	Freezing MoveStep = "freezing" // they work nowhere
	Switched MoveStep = "switched" // they are the target's
	Opened   MoveStep = "opened"   // they work at the target, the source is cleaned up
	Undoing  MoveStep = "undoing"  // they are thawed at the source
)

// errMap says that the map cannot be what it is.
var errMap = errors.New("the map of the inbox is damaged")

// newChart gives all slots to the home.
func newChart(inbox string) *Chart {
	c := &Chart{Inbox: inbox, Cells: map[string]int{Home: 0}}
	for i := range c.owner {
		c.owner[i] = Home
	}
	c.join()
	return c
}

// readChart reads a document.
func readChart(d store.Document) (*Chart, error) {
	c := &Chart{Version: d.Version}
	if err := json.Unmarshal(d.Value, c); err != nil {
		return nil, fmt.Errorf("%w: %w", errMap, err)
	}
	for _, s := range c.Spans {
		if s.From < 0 || s.To >= chartSlots || s.From > s.To {
			return nil, fmt.Errorf("%w: span %d-%d", errMap, s.From, s.To)
		}
		for i := s.From; i <= s.To; i++ {
			c.owner[i] = s.Cell
		}
	}
	for i := range c.owner {
		if i >= store.InboxSlots && c.owner[i] == "" {
			c.owner[i] = Home // all tasks were there when the map was written
		}
	}
	if at := slices.Index(c.owner[:], ""); at >= 0 {
		return nil, fmt.Errorf("%w: nobody has slot %d", errMap, at)
	}
	return c, nil
}

// copy returns a chart that may be changed.
func (c *Chart) copy() *Chart {
	text, err := json.Marshal(c)
	if err != nil {
		panic("cells: " + err.Error()) // plain data always encodes
	}
	out, err := readChart(store.Document{Value: text, Version: c.Version})
	if err != nil {
		panic("cells: " + err.Error())
	}
	return out
}

// join makes spans of the owners.
func (c *Chart) join() {
	c.Spans = nil
	for i, cell := range c.owner {
		if n := len(c.Spans); n > 0 && c.Spans[n-1].Cell == cell {
			c.Spans[n-1].To = i
			continue
		}
		c.Spans = append(c.Spans, Span{i, i, cell})
	}
}

// give makes a cell the owner of slots.
func (c *Chart) give(slots []int, cell string) {
	for _, s := range slots {
		c.owner[s] = cell
	}
	c.join()
}

// Owner returns the cell that has a slot.
func (c *Chart) Owner(slot int) string { return c.owner[slot] }

// SlotsOf lists the slots of keys of a cell.
func (c *Chart) SlotsOf(cell string) []int { return ofKeys(c.allOf(cell)) }

// allOf lists the slots of keys, and behind them those of tasks.
func (c *Chart) allOf(cell string) (slots []int) {
	for i, owner := range c.owner {
		if owner == cell {
			slots = append(slots, i)
		}
	}
	return slots
}

// moving finds the move that a slot goes by; nil when it goes by none.
func (c *Chart) moving(slot int) *Move {
	for _, m := range c.Moves {
		if slices.Contains(m.Slots, slot) || slices.Contains(m.Rest, slot) {
			return m
		}
	}
	return nil
}
