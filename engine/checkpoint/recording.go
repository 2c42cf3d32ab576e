package checkpoint

import (
	"encoding/json"
	"time"

	"procaas/engine/model"
)

// A RunRecording has what a run depended on other than its event and its definition. With it,
// another definition can replay the run. Only some runs have one. See [engine.Options].Record.
type RunRecording struct {
	Configs json.RawMessage `json:"configs,omitempty" doc:"The live settings as the run began."`
	Found   json.RawMessage `json:"found,omitempty" doc:"The shared state of its key as the run began."`
	Calls   []RecordedCall  `json:"calls,omitempty" doc:"How each call ended, in that order."`
	Events  []RecordedEvent `json:"events,omitempty" doc:"The events that the run awaited, as they came."`
	Size    int             `json:"size,omitempty" doc:"The size of all that in bytes."`
	Lost    string          `json:"lost,omitempty" doc:"Why nothing of that is there; absent otherwise."`
}

// A RecordedCall is one attempt of a handler, or one verification.
type RecordedCall struct {
	Ref       string          `json:"ref" doc:"The path of the handler. The calls that it is inside of stand before it, and the index of its item behind it."`
	Attempt   int             `json:"attempt" doc:"The number of the attempt, from 1."`
	Verify    bool            `json:"verify,omitempty" doc:"true if the call asked what became of the attempt."`
	Took      time.Duration   `json:"took_ns" doc:"How long it took, in nanoseconds."`
	Response  json.RawMessage `json:"response,omitempty" doc:"What the handler made of the reply; of an error the body."`
	Status    int             `json:"status,omitempty" doc:"The HTTP status; absent without one."`
	Error     string          `json:"error,omitempty" doc:"Why it failed; absent if it succeeded."`
	Class     string          `json:"class,omitempty" doc:"The class of the error."`
	Permanent bool            `json:"permanent,omitempty" doc:"true if the error excludes a retry."`
	After     time.Duration   `json:"after_ns,omitempty" doc:"How long the service asked to wait before a retry, in nanoseconds."`
	Probe     bool            `json:"probe,omitempty" doc:"true if the call only tried whether the service was back."`
}

// A RecordedEvent is an event that the run has awaited.
type RecordedEvent struct {
	After   time.Duration   `json:"after_ns" doc:"When it came, in nanoseconds since the run began."`
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Type    string          `json:"type"`
	Time    time.Time       `json:"time"`
	Key     string          `json:"key,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// maxRecording bounds a recording in bytes. Each checkpoint contains it, and there is one after
// each handler.
const maxRecording = 64 << 10

// overhead is the approximate size of a recorded call without its response, in bytes.
const overhead = 96

// NewRecording starts a recording.
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

// Event adds an event that came this long after the run began. A nil RunRecording keeps nothing.
func (r *RunRecording) Event(after time.Duration, e model.Event) {
	if r == nil {
		return
	}
	data, err := model.EncodeData(e.Payload)
	if err != nil {
		return // a run has read it, so it can be encoded
	}
	if r.grow(overhead + len(data)) {
		r.Events = append(r.Events, RecordedEvent{after, e.ID, e.Source, e.Type, e.Time, e.Key, data})
	}
}

// grow reports whether there is room for more. If not, it drops the recording, because a part of a
// run cannot be replayed.
func (r *RunRecording) grow(bytes int) bool {
	if r.Lost != "" {
		return false
	}
	r.Size += bytes
	if r.Size > maxRecording {
		*r = RunRecording{Lost: "its recording is over 64 KiB"}
		return false
	}
	return true
}
