package checkpoint

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// This file decodes checkpoints of all formats. Format 1 has handlers in declared order, the others
// in reverse order. Formats 1 and 2 have full paths and times. Since format 3:
//
//   - A time is the number of milliseconds since the run began, if that is exact.
//   - A path that begins with a slash is below the pipeline.
//   - "ok" is the number of attempts of a handler that has succeeded with the status 200.
//   - "at" and "end" are when a handler started and finished.

// okStatus is the status of most responses.
const okStatus = 200

// A moment is a time in its written form.
type moment time.Time

// sinceBegan is the zone of a time that still counts from the start of its run.
var sinceBegan = time.FixedZone("since it began", 0)

// UnmarshalJSON implements [json.Unmarshaler].
func (m *moment) UnmarshalJSON(data []byte) error {
	if ms, err := strconv.ParseInt(string(data), 10, 64); err == nil {
		*m = moment(time.UnixMilli(ms).In(sinceBegan))
		return nil
	}
	return json.Unmarshal(data, (*time.Time)(m))
}

// take replaces a time by the written one.
func (m *moment) take(into *time.Time) {
	if t := time.Time(*m); !t.IsZero() {
		*into = t
	}
}

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Record) UnmarshalJSON(data []byte) error {
	type full Record
	var w struct {
		*full

		OK      *int   `json:"ok"`
		Started moment `json:"at"`
		Ended   moment `json:"end"`
		Due     moment `json:"due"`
		Held    moment `json:"held"`
		Clock   moment `json:"clock"`
	}
	w.full = (*full)(r)
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	w.Started.take(&r.Started)
	w.Ended.take(&r.Finished)
	w.Due.take(&r.Due)
	w.Held.take(&r.Held)
	w.Clock.take(&r.Clock)
	if w.OK != nil {
		r.Outcome, r.Attempts, r.Status = model.OutcomeSucceeded, *w.OK, okStatus
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Try) UnmarshalJSON(data []byte) error {
	var w struct {
		Began moment `json:"began"`
		Ended moment `json:"ended"`
		Error string `json:"error"`
	}
	err := json.Unmarshal(data, &w)
	*t = Try{Began: time.Time(w.Began), Ended: time.Time(w.Ended), Error: w.Error}
	return err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Run) UnmarshalJSON(data []byte) error {
	type full Run
	var w struct {
		*full

		Clock      moment `json:"clock"`
		StageClock moment `json:"stage_clock"`
		Paused     moment `json:"paused"`
	}
	w.full = (*full)(c)
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	w.Clock.take(&c.Clock)
	w.StageClock.take(&c.StageClock)
	w.Paused.take(&c.Paused)
	c.anchor(&c.Clock, &c.StageClock, &c.Paused)
	for i := range c.Handlers {
		c.complete(&c.Handlers[i])
	}
	if c.Format != 1 {
		slices.Reverse(c.Handlers)
	}
	if c.Format == 1 || c.Format == 2 {
		c.Format = Format
	}
	return nil
}

// anchor converts times since the start of the run to real times.
func (c *Run) anchor(times ...*time.Time) {
	for _, t := range times {
		if t.Location() == sinceBegan {
			*t = c.Began.Add(time.Duration(t.UnixMilli()) * time.Millisecond)
		}
	}
}

// complete gives a record its full path and times. The run inside a call has already done so for
// its own records.
func (c *Run) complete(r *Record) {
	if strings.HasPrefix(r.Path, "/") {
		r.Path = c.Pipeline + r.Path
	}
	c.anchor(&r.Started, &r.Finished, &r.Due, &r.Held, &r.Clock)
	for i := range r.Tries {
		c.anchor(&r.Tries[i].Began, &r.Tries[i].Ended)
	}
	if r.Undo != nil {
		c.complete(r.Undo)
	}
	if r.Each != nil {
		for i := range r.Each.Of {
			c.complete(&r.Each.Of[i])
		}
	}
	for i := range r.Trail {
		c.complete(&r.Trail[i])
	}
}
