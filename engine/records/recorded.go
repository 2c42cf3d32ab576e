package records

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/store"
)

// A Recorded is an ended run with the data for a replay. Secrets are hidden, as in every run.
type Recorded struct {
	checkpoint.RunView
	State     string                  `json:"state" doc:"The state of the automaton as the run began; empty if the flow has none."`
	Recording checkpoint.RunRecording `json:"recording" doc:"What the run depended on, apart from its event and its version."`
}

// An Archived is an ended run as an archive has it: what the API answers, and what a replay needs, if the run was recorded. Then it
// is a [Recorded].
type Archived struct {
	checkpoint.RunView
	State     string                   `json:"state,omitempty"`
	Recording *checkpoint.RunRecording `json:"recording,omitempty"`
}

// archivedOf returns an ended run for an archive.
func archivedOf(r store.RunRecord) Archived {
	if one := recordedOf(r); one != nil {
		return Archived{RunView: one.RunView, State: one.State, Recording: &one.Recording}
	}
	return Archived{RunView: View(r)}
}

// Recorded reads a page of the runs that a filter chooses. It returns those that have ended and
// were recorded, oldest first, and the cursor of the next page.
func (o *Runs) Recorded(ctx context.Context, f store.RunFilter) (out []Recorded, next string, err error) {
	f.Oldest, f.Brief, f.Bytes = true, false, o.pageBytes()
	found, next, err := o.Store.Runs.List(ctx, f)
	if err != nil {
		return nil, "", fmt.Errorf("list recorded runs: %w", err)
	}
	out = []Recorded{}
	for _, r := range found {
		if one := recordedOf(r); one != nil {
			out = append(out, *one)
		}
	}
	return out, next, nil
}

// RecordedRun reads an ended run, or nil if it was not recorded. The error is [store.ErrNotFound] if
// it does not exist.
func (o *Runs) RecordedRun(ctx context.Context, id string) (*Recorded, error) {
	r, err := o.Store.Runs.Run(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("recorded run %s: %w", id, err)
	}
	return recordedOf(r), nil
}

// recordedOf returns an ended run with its recording, or nil if it has not ended or was not recorded.
func recordedOf(r store.RunRecord) *Recorded {
	if !r.Status.Ended() || !bytes.Contains(r.Checkpoint, []byte(`"recording":`)) {
		return nil
	}
	c, err := checkpoint.Read(r.Checkpoint)
	if err != nil || c.Recording == nil {
		return nil // of another version, or plain text
	}
	one := &Recorded{RunView: View(r), State: c.State, Recording: *c.Recording}
	if r.Generation > 0 || c.MakesUp != "" {
		one.Recording = checkpoint.RunRecording{Lost: "an operator retried it or made up a handler"}
	}
	if raw, err := datum.FormatKinds(r.Event.Payload); err == nil {
		one.Event.Payload = json.RawMessage(raw) // keeps the kind of numbers
	}
	return one
}
