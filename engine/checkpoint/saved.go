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
	Path     string        `json:"path,omitempty"`
	Item     int           `json:"item,omitempty"` // number of an item of a for-each, from 1
	Outcome  string        `json:"outcome,omitempty"`
	Attempts int           `json:"attempts,omitempty"`
	Failures int           `json:"failures,omitempty"`
	Unknown  bool          `json:"unknown,omitempty"`
	Asked    int           `json:"asked,omitempty"`
	Started  time.Time     `json:"started,omitzero"`
	Finished time.Time     `json:"finished,omitzero"`
	Due      time.Time     `json:"due,omitzero"`
	Delay    time.Duration `json:"delay_ns,omitempty"`
	Held     time.Time     `json:"held,omitzero"`
	// start of its deadline's time, by the clock of deadlines
	Clock    time.Time       `json:"clock,omitzero"`
	Error    string          `json:"error,omitempty"`
	Class    string          `json:"class,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Response json.RawMessage `json:"response,omitempty"`
	Status   int             `json:"status,omitempty"`
	Emitted  []string        `json:"emitted,omitempty"`
	Heard    int             `json:"heard,omitempty"`
	Again    string          `json:"again,omitempty"`
	Each     *Each           `json:"each,omitempty"`
	Saw      Values          `json:"saw,omitempty"`
	Was      Values          `json:"was,omitempty"`
	Wide     []string        `json:"wide,omitempty"`
	Tries    []Try           `json:"tries,omitempty"`
	Done     int             `json:"done,omitempty"`
	Borrowed bool            `json:"borrowed,omitempty"` // done by another run; this one does not undo it
	Undo     *Record         `json:"undo,omitempty"`     // of its compensation
	Call     *Run            `json:"call,omitempty"`     // the run inside its call
	Trail    []Record        `json:"trail,omitempty"`    // outcomes inside an ended call
}

// A Try is one attempt.
type Try struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"` // absent for the last one, unless it failed
	Error string    `json:"error,omitempty"`
}

// Replaces reports whether a handler has changed a name of the shared state.
func (r Record) Replaces(name string) bool {
	_, was := r.Was.Get(name)
	return was || slices.Contains(r.Wide, name)
}

// An Each is an iteration in a checkpoint. Items that were not reached have no record.
type Each struct {
	Items     json.RawMessage `json:"items,omitempty"`
	Total     int             `json:"total,omitempty"`
	Succeeded int             `json:"succeeded,omitempty"`
	Failed    int             `json:"failed,omitempty"`
	// items that succeeded at the first attempt and have nothing else to keep: 1-7,9
	Done string   `json:"done,omitempty"`
	Of   []Record `json:"of,omitempty"`
}

// Numbers formats increasing numbers as text: 1-7,9.
type Numbers struct {
	b           []byte
	first, last int
}

// Add adds a number greater than those before.
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

// Text returns the text.
func (n *Numbers) Text() string {
	n.flush()
	return string(n.b)
}

// ReadNumbers parses the text of Numbers. A number above highest is an error.
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
		least := 1 // numbers rise
		if len(out) > 0 {
			least = out[len(out)-1] + 1
		}
		if err != nil || first < least || last < first || last > highest {
			return nil, fmt.Errorf("items: there is no sense in %q", model.CleanText(text))
		}
		for i := first; i <= last; i++ {
			out = append(out, i)
		}
	}
	return out, nil
}

// Format is the version of the format. Older ones can be read. A run with a newer one is left
// alone.
const Format = 3

// A Run is the stored form of a run: everything that its plan and its event cannot tell. Only
// handlers that were reached have a record, in declared order.
//
// The parts that change most come first: the last handler is at the start, and what never changes
// is at the end. PostgreSQL does not log the unchanged end of a row again. Values that follow from
// the rest are omitted: see [Run.Encode] and [Run.UnmarshalJSON].
type Run struct {
	Stage      int          `json:"stage"`
	Ended      model.Status `json:"ended,omitempty"`
	FailedPath string       `json:"failed_handler,omitempty"`
	Failure    string       `json:"error,omitempty"`
	Class      string       `json:"error_class,omitempty"`
	Reason     string       `json:"reason,omitempty"`
	Stopping   string       `json:"stopping,omitempty"`
	Undoing    bool         `json:"undoing,omitempty"`
	Closing    model.Status `json:"closing,omitempty"` // how it ends once finally is done
	// start of the time of the pipeline's deadline, by the clock of deadlines
	Clock      time.Time `json:"clock,omitzero"`
	StageClock time.Time `json:"stage_clock,omitzero"` // and of the stage's deadline
	// Stood is how far that clock is behind because operators held handlers. Not set inside a call.
	Stood  time.Duration `json:"stood_ns,omitempty"`
	Paused time.Time     `json:"paused,omitzero"` // since when that clock stands still; not set inside a call
	// handlers so far, including those of elements and calls; not set inside a call
	Parts  int `json:"parts,omitempty"`
	Looped int `json:"looped,omitempty"` // runs that it has started in its loop; not set inside a call
	// Redone has each ref that was undone and will be done again, as often as it was undone. Not
	// set inside a call.
	Redone []string `json:"redone,omitempty"`
	// the result of a succeeded run; not set inside a call
	Outputs    json.RawMessage `json:"outputs,omitempty"`
	Shared     Values          `json:"shared_state"`
	Wrote      []string        `json:"wrote,omitempty"`
	Handlers   []Record        `json:"handlers"`
	Generation int             `json:"generation,omitempty"`
	State      string          `json:"state,omitempty"`     // state of the entity when the run began
	MakesUp    string          `json:"makes_up,omitempty"`  // the handler that it makes up for after its end
	Inputs     json.RawMessage `json:"inputs,omitempty"`    // of a run inside a call
	Recording  *RunRecording   `json:"recording,omitempty"` // only of recorded runs; not set inside a call
	Began      time.Time       `json:"began"`
	Pipeline   string          `json:"pipeline"`
	Format     int             `json:"v"`
}

// Trail returns the outcomes of the handlers of an ended call, without what it has undone.
func (c *Run) Trail() []Record {
	var out []Record
	for _, h := range c.Handlers {
		if h.Call != nil {
			h.Trail = h.Call.Trail()
		}
		out = append(out, Record{
			Path: h.Path, Outcome: h.Outcome, Attempts: h.Attempts, Started: h.Started, Finished: h.Finished, Error: h.Error, Reason: h.Reason,
			Trail: h.Trail,
		})
	}
	return out
}

// Read decodes a checkpoint without a plan.
func Read(data []byte) (Run, error) {
	var c Run
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("read checkpoint: %w", err)
	}
	if c.Format != Format {
		return c, fmt.Errorf("read checkpoint: want format %d or less, have %d: it was written by another version of the engine",
			Format, c.Format)
	}
	return c, nil
}
