package triggers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// These are the reasons why a trigger does not fire at a due time.
const (
	Paused  = "paused"  // by operators
	Running = "running" // the overlap policy does not allow another run
	Missed  = "missed"  // no node ran, and catch-up does not make up for it
)

// A Mark is what the store knows of a trigger beside its events. All nodes share it.
type Mark struct {
	// Passed is the latest due time at which the trigger did not fire. Zero if it has always fired.
	Passed time.Time `json:"passed,omitzero"`
	Reason string    `json:"reason,omitempty"` // of Passed: one of the reasons above
	Run    string    `json:"run,omitempty"`    // the run that had not ended, for [Running]

	// Skipped counts the due times at which the trigger did not fire, by reason.
	Skipped map[string]int64 `json:"skipped,omitempty"`

	// Asked are the latest events that operators fired, by [ByHand] and [ByBackfill].
	Asked map[string]AskedEvent `json:"asked,omitempty"`
}

// An AskedEvent is an event that an operator fired.
type AskedEvent struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"` // of the event
}

// pass notes that the trigger does not fire at the due times up to the last one. It reports whether that is news.
func (m *Mark) pass(last time.Time, reason, run string, times int) bool {
	if !last.After(m.Passed) {
		return false
	}
	m.Passed, m.Reason, m.Run = last, reason, run
	m.Skipped = maps.Clone(m.Skipped)
	if m.Skipped == nil {
		m.Skipped = map[string]int64{}
	}
	m.Skipped[reason] += int64(times)
	return true
}

// Ask notes an event that an operator is about to fire. It reports whether that is news.
func (m *Mark) Ask(how string, ev model.Event) bool {
	if m.Asked[how].ID == ev.ID {
		return false
	}
	m.Asked = maps.Clone(m.Asked)
	if m.Asked == nil {
		m.Asked = map[string]AskedEvent{}
	}
	m.Asked[how] = AskedEvent{ev.ID, ev.Time}
	return true
}

// Marks keeps the marks of triggers as documents of the store.
type Marks struct{ Documents store.Documents }

const (
	markKind  = "trigger"
	markTries = 10 // of a change that other nodes change meanwhile
)

// Read returns the mark of a trigger. A trigger without one has the zero mark.
func (k Marks) Read(ctx context.Context, id string) (Mark, error) {
	m, _, err := k.read(ctx, id)
	return m, err
}

func (k Marks) read(ctx context.Context, id string) (m Mark, version int64, err error) {
	d, err := k.Documents.Document(ctx, markKind, id)
	if errors.Is(err, store.ErrNotFound) {
		return m, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(d.Value, &m)
	}
	if err != nil {
		return m, 0, fmt.Errorf("trigger %s: read its mark: %w", id, err)
	}
	return m, d.Version, nil
}

// All returns the marks of all triggers that have one.
func (k Marks) All(ctx context.Context) (map[string]Mark, error) {
	all := map[string]Mark{}
	documents, err := k.Documents.DocumentsOf(ctx, markKind, "")
	for _, d := range documents {
		var m Mark
		if err := json.Unmarshal(d.Value, &m); err != nil {
			return nil, fmt.Errorf("trigger %s: read its mark: %w", d.Name, err)
		}
		all[d.Name] = m
	}
	return all, err
}

// Change changes the mark of a trigger, with the audit records in the same transaction. do reports whether there is
// anything to write. It is called again if another node has changed the mark meanwhile.
func (k Marks) Change(ctx context.Context, id string, do func(*Mark) bool, audits ...store.Audited) (changed bool, err error) {
	for range markTries {
		m, version, err := k.read(ctx, id)
		if err != nil || !do(&m) {
			return false, err
		}
		w := store.DocumentWrite{Kind: markKind, Name: id, Version: version, Value: model.EncodeJSON(m)}
		_, err = k.Documents.WriteDocuments(ctx, 0, []store.DocumentWrite{w}, audits)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return false, fmt.Errorf("trigger %s: write its mark: %w", id, err)
		}
	}
	return false, fmt.Errorf("trigger %s: write its mark: other nodes change it all the time: %w", id, store.ErrConflict)
}
