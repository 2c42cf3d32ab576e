package model

import (
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// An Event is what a service submits: it activates a pipeline for one key.
type Event struct {
	ID     string    // unique within Source; the engine makes one when it is empty
	Source string    // who sent it; empty is a source like any other
	Type   string    // which pipelines it may activate
	Time   time.Time // when it happened, by its sender; acceptance time when zero
	Key    string    // the entity, for flows whose key expression is left out

	// Labels are what its run may be found by, as [FormatLabels] writes them; may be empty.
	Labels string

	Payload any // nil, bool, int, float64, string, []any or map[string]any

	// At is when the event is due; at once when zero.
	At time.Time

	// DelayTolerance is how long the event may wait beyond At without harm.
	DelayTolerance time.Duration

	// Priority orders events that are due; higher first, 0 by default.
	Priority int

	// Identity is what the keys of the calls of its run follow from, so that they are the same
	// when the event is submitted again after a restore. The engine sets it; empty for an
	// event without an id of its own, and for one that an older version accepted.
	Identity string

	// Hops is how many events led to this one, each emitted by the run of the one before, and
	// ChainSince is when the first of those runs began. The engine sets them; zero for an event that no run emitted.
	Hops       int
	ChainSince time.Time

	// TraceParent and TraceState are the W3C trace context of the sender, as
	// [tracing.Context] gives it; may be empty.
	TraceParent, TraceState string

	// Rerun says of which run this event begins another one, and Start is the checkpoint that it begins from: empty for the
	// first stage. The engine sets them; nil for an event that stands for itself.
	Rerun *Rerun
	Start json.RawMessage

	// Inner is true for the engine's own events: a run emitted it, a trigger fired it,
	// or a task became it. Submitters cannot set it.
	Inner bool
}

// A Rerun says what an operator wants to run again.
type Rerun struct {
	Of     string `json:"of"`              // the id of the run
	Stage  string `json:"stage,omitempty"` // from which on; empty for all of it
	By     string `json:"by"`              // the operator
	Reason string `json:"reason,omitempty"`
}

// RerunSource is the source under which the events are known that run a run again. Their ids are those of their runs.
func RerunSource(run string) string { return ReservedSource + "rerun/" + run }

// emittedSpace is put before the source that an author has given to an emitted event.
const emittedSpace = ReservedSource + "emitted/"

// Namespace returns the source under which the id of the event is known. Ids of the
// engine's own events are known apart from those of submitters: otherwise whoever
// submits an event with an id to come would keep that event from ever happening.
func (e Event) Namespace() string {
	if e.Rerun != nil {
		return RerunSource(e.Rerun.Of)
	}
	if !e.Inner || strings.HasPrefix(e.Source, ReservedSource) {
		return e.Source
	}
	return emittedSpace + e.Source
}

// ReservedSource begins the sources that only the engine may use.
const ReservedSource = "procaas/"

// TaskSource is the source of the events that tasks of a pipeline become.
func TaskSource(pipeline string) string { return ReservedSource + "queue/" + pipeline }

var percentEncoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// IsReservedSource reports whether a source begins with procaas/, also when it only
// looks so to people or to a reader that undoes an encoding: in other case, behind
// slashes, dots or spaces, with backslashes, or encoded as in URLs.
func IsReservedSource(source string) bool {
	for {
		decoded := percentEncoded.ReplaceAllStringFunc(source, func(digits string) string {
			b, _ := hex.DecodeString(digits[1:])
			return string(b)
		})
		if decoded == source {
			break
		}
		source = decoded
	}
	source = strings.ReplaceAll(strings.ToLower(source), `\`, "/")
	source = strings.TrimLeftFunc(source, func(r rune) bool { return r == '/' || r == '.' || unicode.IsSpace(r) || unicode.IsControl(r) })
	name, _, below := strings.Cut(source, "/")
	return below && strings.TrimSpace(name)+"/" == ReservedSource
}

// A Receipt says what became of a submitted event.
type Receipt struct {
	Event     string // the event's id
	Run       string // the id of its run
	Duplicate bool   // the event had been accepted before; Run is that run

	// Undecided says that nobody knows yet whether the state of the key will allow the event:
	// earlier events may change it, or the time until the event is due. If it does not, the
	// run ends ignored.
	Undecided bool

	// Key is the entity that the event belongs to: its own key, or what the flow makes
	// of the event; then the event's own orders nothing, which senders should know.
	Key string
}
