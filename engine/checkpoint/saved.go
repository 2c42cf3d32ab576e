package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
)

// A Record is a record in a checkpoint.
type Record struct {
	Path     string                     `json:"path,omitempty"`
	Item     int                        `json:"item,omitempty"` // of a for-each, from 1
	Outcome  string                     `json:"outcome,omitempty"`
	Attempts int                        `json:"attempts,omitempty"`
	Failures int                        `json:"failures,omitempty"`
	Unknown  bool                       `json:"unknown,omitempty"`
	Asked    int                        `json:"asked,omitempty"`
	Started  time.Time                  `json:"started,omitzero"`
	Finished time.Time                  `json:"finished,omitzero"`
	Due      time.Time                  `json:"due,omitzero"`
	Delay    time.Duration              `json:"delay_ns,omitempty"`
	Held     time.Time                  `json:"held,omitzero"`
	Clock    time.Time                  `json:"clock,omitzero"` // since when its deadline counts, by the clock of deadlines
	Error    string                     `json:"error,omitempty"`
	Class    string                     `json:"class,omitempty"`
	Reason   string                     `json:"reason,omitempty"`
	Response json.RawMessage            `json:"response,omitempty"`
	Status   int                        `json:"status,omitempty"`
	Emitted  []string                   `json:"emitted,omitempty"`
	Heard    int                        `json:"heard,omitempty"`
	Each     *Each                      `json:"each,omitempty"`
	Saw      map[string]json.RawMessage `json:"saw,omitempty"`
	Was      map[string]json.RawMessage `json:"was,omitempty"`
	Wide     []string                   `json:"wide,omitempty"`
	Tries    []Try                      `json:"tries,omitempty"`
	Done     int                        `json:"done,omitempty"`
	Borrowed bool                       `json:"borrowed,omitempty"` // what another run has done, and this one does not undo
	Undo     *Record                    `json:"undo,omitempty"`     // of its compensation
	Call     *Run                       `json:"call,omitempty"`     // inside of the pipeline that it calls
	Trail    []Record                   `json:"trail,omitempty"`    // of a call that has ended
}

// A Try is one attempt.
type Try struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"` // absent for the last one, unless it failed
	Error string    `json:"error,omitempty"`
}

// Replaces reports whether a handler has changed a name of the shared state.
func (r Record) Replaces(name string) bool {
	_, was := r.Was[name]
	return was || slices.Contains(r.Wide, name)
}

// A Each is an iteration in a checkpoint. Items that were not reached have no
// record.
type Each struct {
	Items     json.RawMessage `json:"items,omitempty"`
	Total     int             `json:"total,omitempty"`
	Succeeded int             `json:"succeeded,omitempty"`
	Failed    int             `json:"failed,omitempty"`
	Done      string          `json:"done,omitempty"` // those that succeeded at once and left nothing to keep: 1-7,9
	Of        []Record        `json:"of,omitempty"`
}

// Numbers gathers growing numbers as text: 1-7,9.
type Numbers struct {
	b           []byte
	first, last int
}

// Add takes a number in that is greater than those before.
func (n *Numbers) Add(i int) {
	if n.last > 0 && i == n.last+1 {
		n.last = i
		return
	}
	n.flush()
	n.first, n.last = i, i
}

func (n *Numbers) flush() {
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

// Text writes the numbers.
func (n *Numbers) Text() string {
	n.flush()
	return string(n.b)
}

// ReadNumbers reads what numbers wrote, up to the highest one that there is.
func ReadNumbers(text string, highest int) ([]int, error) {
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
			return nil, fmt.Errorf("items: there is no sense in %q", model.CleanText(text))
		}
		for i := first; i <= last; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}

// Format is the version of the checkpoint's form. Those before are read, too. A run whose
// checkpoint has another one is not touched.
const Format = 3

// A Run is what is kept of a run: all that it cannot find out again from
// its plan and its event. Only handlers that were reached have a record, in the
// order of their declaration.
//
// It is written with what changes most in front: the last handler comes first, and what never
// changes is at the end. PostgreSQL does not log the end of a row again that stays the same. What
// can be told by the rest is not written: see [Run.Encode] and [Run.UnmarshalJSON].
type Run struct {
	Stage      int                        `json:"stage"`
	Ended      model.Status               `json:"ended,omitempty"`
	FailedPath string                     `json:"failed_handler,omitempty"`
	Failure    string                     `json:"error,omitempty"`
	Class      string                     `json:"error_class,omitempty"`
	Reason     string                     `json:"reason,omitempty"`
	Stopping   string                     `json:"stopping,omitempty"`
	Undoing    bool                       `json:"undoing,omitempty"`
	Clock      time.Time                  `json:"clock,omitzero"`       // since when the deadline of the pipeline counts, by the clock of deadlines
	StageClock time.Time                  `json:"stage_clock,omitzero"` // and that of the stage
	Stood      time.Duration              `json:"stood_ns,omitempty"`   // how far that clock is behind, since operators held handlers; not inside of a call
	Paused     time.Time                  `json:"paused,omitzero"`      // since when it stands; not inside of a call
	Parts      int                        `json:"parts,omitempty"`      // how many handlers it has had, those of elements and calls counted; not inside of a call
	Looped     int                        `json:"looped,omitempty"`     // how many runs it has started in its loop; not inside of a call
	Redone     []string                   `json:"redone,omitempty"`     // refs of what was undone, to be done again, as often as it was; not inside of a call
	Outputs    json.RawMessage            `json:"outputs,omitempty"`    // the result of a run that has succeeded; not inside of a call
	Shared     map[string]json.RawMessage `json:"shared_state"`
	Wrote      []string                   `json:"wrote,omitempty"`
	Handlers   []Record                   `json:"handlers"`
	Generation int                        `json:"generation,omitempty"`
	State      string                     `json:"state,omitempty"`     // of the entity, when the run began
	MakesUp    string                     `json:"makes_up,omitempty"`  // the handler that is done after the run had ended
	Inputs     json.RawMessage            `json:"inputs,omitempty"`    // inside of a call
	Recording  *RunRecording              `json:"recording,omitempty"` // of some runs; not inside of a call
	Began      time.Time                  `json:"began"`
	Pipeline   string                     `json:"pipeline"`
	Format     int                        `json:"v"`
}

// Read decodes a checkpoint without a plan.
func Read(data []byte) (Run, error) {
	var c Run
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("read checkpoint: %w", err)
	}
	if c.Format != Format {
		return c, fmt.Errorf("read checkpoint: want format %d or less, have %d: it was written by another version of the engine", Format, c.Format)
	}
	return c, nil
}
