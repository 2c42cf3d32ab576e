package checkpoint

import (
	"encoding/json"
	"time"

	"procaas/engine/model"
)

// A RunRecording is what a run depended on besides its event and its definition: with it, the run can be replayed by
// another definition. Only some runs have one; see [engine.Options].Record.
type RunRecording struct {
	Configs json.RawMessage `json:"configs,omitempty"` // as the run began
	Found   json.RawMessage `json:"found,omitempty"`   // of the shared state of its key, as the run began
	Calls   []RecordedCall  `json:"calls,omitempty"`   // as they ended
	Events  []RecordedEvent `json:"events,omitempty"`  // that the run has awaited, as they came
	Size    int             `json:"size,omitempty"`    // of all that, in bytes
	Lost    string          `json:"lost,omitempty"`    // why there is nothing of that, for people
}

// A RecordedCall is one attempt of a handler, or the call that asked what became of one.
type RecordedCall struct {
	Ref       string          `json:"ref"` // of [core.Attempt]
	Attempt   int             `json:"attempt"`
	Verify    bool            `json:"verify,omitempty"`
	Took      time.Duration   `json:"took_ns"`
	Response  json.RawMessage `json:"response,omitempty"`
	Status    int             `json:"status,omitempty"`
	Error     string          `json:"error,omitempty"` // empty: it succeeded
	Class     string          `json:"class,omitempty"` // of the error
	Permanent bool            `json:"permanent,omitempty"`
	After     time.Duration   `json:"after_ns,omitempty"` // that the error asks to wait; 0 for nothing
	Probe     bool            `json:"probe,omitempty"`
}

// A RecordedEvent is an event that the run has awaited.
type RecordedEvent struct {
	After   time.Duration   `json:"after_ns"` // since the run began
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Time    time.Time       `json:"time"`
	Key     string          `json:"key,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// maxRecording bounds a recording, in bytes. A checkpoint has all of it, and there is one after each handler.
const maxRecording = 64 << 10

// overhead is about what a call has in a recording besides its response, in bytes.
const overhead = 96

// NewRecording begins one.
func NewRecording(configs, found map[string]any) *RunRecording {
	r := &RunRecording{}
	both := [2]json.RawMessage{}
	for i, v := range []map[string]any{configs, found} {
		if len(v) == 0 {
			continue
		}
		raw, err := model.EncodeData(v)
		if err != nil {
			return &RunRecording{Lost: err.Error()}
		}
		both[i] = raw
	}
	if r.grow(len(both[0]) + len(both[1])) {
		r.Configs, r.Found = both[0], both[1]
	}
	return r
}

// Call adds a call. A nil RunRecording keeps nothing.
func (r *RunRecording) Call(c RecordedCall) {
	if r != nil && r.grow(overhead+len(c.Ref)+len(c.Response)+len(c.Error)) {
		r.Calls = append(r.Calls, c)
	}
}

// Event adds an event that has come a time after the run began. A nil RunRecording keeps nothing.
func (r *RunRecording) Event(after time.Duration, e model.Event) {
	if r == nil {
		return
	}
	data, err := model.EncodeData(e.Payload)
	if err != nil {
		return // it is data that a run has read
	}
	if r.grow(overhead + len(data)) {
		r.Events = append(r.Events, RecordedEvent{after, e.ID, e.Source, e.Type, e.Time, e.Key, data})
	}
}

// grow reports whether there is room for more. Without, nothing is kept: a part of a run cannot be replayed.
func (r *RunRecording) grow(bytes int) bool {
	if r.Lost != "" {
		return false
	}
	if r.Size += bytes; r.Size > maxRecording {
		*r = RunRecording{Lost: "its recording is over 64 KiB"}
		return false
	}
	return true
}
