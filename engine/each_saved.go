package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"procaas/dsl"
)

// This file keeps items in checkpoints. It belongs to the pure core, as run.go does.

// A savedEach is an iteration in a checkpoint. Items that were not reached have no
// record.
type savedEach struct {
	Items     json.RawMessage `json:"items,omitempty"`
	Total     int             `json:"total,omitempty"`
	Succeeded int             `json:"succeeded,omitempty"`
	Failed    int             `json:"failed,omitempty"`
	Done      string          `json:"done,omitempty"` // those that succeeded at once and left nothing to keep: 1-7,9
	Of        []savedRecord   `json:"of,omitempty"`
}

func (e *iteration) save() *savedEach {
	if e == nil {
		return nil
	}
	saved := &savedEach{Items: e.raw, Total: e.total, Succeeded: e.succeeded, Failed: e.failed}
	var done numbers
	for i := range e.of {
		if rec := &e.of[i]; rec.isPlain() {
			done.add(i + 1)
		} else if rec.reached() {
			item := rec.save("")
			item.Item = i + 1
			saved.Of = append(saved.Of, item)
		}
	}
	saved.Done = done.text()
	return saved
}

// isPlain tells whether there is no more to say of an item than that it is done.
func (r *record) isPlain() bool {
	return r.outcome == OutcomeSucceeded && r.attempts == 1 && r.failures == 0 && r.raw == nil && r.status == 0 && r.delay == 0 && r.asked == 0 && r.trail == nil
}

// restoreEach takes over what was saved of the items.
func (r *record) restoreEach(saved *savedEach) error {
	if saved == nil {
		return nil
	}
	r.each = &iteration{raw: saved.Items, total: saved.Total, succeeded: saved.Succeeded, failed: saved.Failed}
	if saved.Items == nil {
		if !r.decided() {
			return errors.New("its items are missing")
		}
		return nil
	}
	data, err := dsl.ParseJSON(saved.Items)
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	items, ok := data.([]any)
	if !ok || len(items) != saved.Total {
		return fmt.Errorf("items: want a list of %d, have %s", saved.Total, kindOf(data))
	}
	r.each.items, r.each.of = items, make([]record, len(items))
	done, err := readNumbers(saved.Done, len(items))
	if err != nil {
		return err
	}
	for _, n := range done {
		r.each.of[n-1] = record{outcome: OutcomeSucceeded, attempts: 1}
	}
	for _, item := range saved.Of {
		if item.Item < 1 || item.Item > len(items) || r.each.of[item.Item-1].reached() {
			return fmt.Errorf("items: there is no item %d, or it is there twice", item.Item)
		}
		if err := r.each.of[item.Item-1].restore(item); err != nil {
			return fmt.Errorf("item %d: %w", item.Item, err)
		}
	}
	return nil
}

// numbers gathers growing numbers as text: 1-7,9.
type numbers struct {
	b           []byte
	first, last int
}

func (n *numbers) add(i int) {
	if n.last > 0 && i == n.last+1 {
		n.last = i
		return
	}
	n.flush()
	n.first, n.last = i, i
}

func (n *numbers) flush() {
	if n.last == 0 {
		return
	}
	if len(n.b) > 0 {
		n.b = append(n.b, ',')
	}
	n.b = strconv.AppendInt(n.b, int64(n.first), 10)
	if n.last > n.first {
		n.b = strconv.AppendInt(append(n.b, '-'), int64(n.last), 10)
	}
}

func (n *numbers) text() string {
	n.flush()
	return string(n.b)
}

// readNumbers reads what numbers wrote, up to the highest one that there is.
func readNumbers(text string, highest int) ([]int, error) {
	var out []int
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 1 || last < first || last > highest || len(out) > 0 && first <= out[len(out)-1] {
			return nil, fmt.Errorf("items: there is no sense in %q", clean(text))
		}
		for i := first; i <= last; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}
