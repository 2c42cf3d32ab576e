package model

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// An Event is what a service submits. It starts a run of a pipeline for one key.
type Event struct {
	ID     string    // unique within Source; if empty, the engine makes one
	Source string    // the sender; may be empty
	Type   string    // chooses the pipelines
	Time   time.Time // when it happened, by the sender's clock; the time of acceptance if zero
	Key    string    // the entity, for flows without a key expression

	// Labels are what people can find its run by, in the form of [FormatLabels]. May be empty.
	Labels string

	Payload any // nil, bool, int, float64, string, []any or map[string]any

	// At is when the event is due. Zero means at once.
	At time.Time

	// DelayTolerance is how long the event may wait beyond At without harm.
	DelayTolerance time.Duration

	// Priority orders events that are due, highest first. The default is 0.
	Priority int

	// Identity is what the keys of the run's calls are derived from. So they stay the same when the
	// event is submitted again after a restore. The engine sets it. It is empty for an event
	// without an id of its own, and for one that an older version accepted.
	Identity string

	// Hops is how many events led to this one, each emitted by the run of the one before.
	// ChainSince is when the first of those runs began. The engine sets them. They are zero for an
	// event that no run emitted.
	Hops       int
	ChainSince time.Time

	// TraceParent and TraceState are the W3C trace context of the sender, as in [tracing.Context].
	// May be empty.
	TraceParent, TraceState string

	// Rerun names the run that this event repeats. Start is the checkpoint from which it begins,
	// empty for the first stage. The engine sets them. Rerun is nil for other events.
	Rerun *Rerun
	Start json.RawMessage

	// Inner is true for the engine's own events: a run emitted it, a trigger fired it, or it was a
	// task. Submitters cannot set it.
	Inner bool
}

// A Rerun is an operator's order to repeat a run.
type Rerun struct {
	Of     string `json:"of"`              // the id of the run
	Stage  string `json:"stage,omitempty"` // where to start; empty for the first stage
	By     string `json:"by"`              // the operator
	Reason string `json:"reason,omitempty"`
}

// RerunSource is the source of events that repeat a run. Their ids are those of the new runs.
func RerunSource(run string) string { return ReservedSource + "rerun/" + run }

// emittedSpace is the prefix of the source that an author has given to an emitted event.
const emittedSpace = ReservedSource + "emitted/"

// Namespace returns the source that makes the event's id unique. The engine's own events have
// separate namespaces. Otherwise a submitter could take a future id and so prevent the engine's
// event.
func (e Event) Namespace() string {
	if e.Rerun != nil {
		return RerunSource(e.Rerun.Of)
	}
	if !e.Inner || strings.HasPrefix(e.Source, ReservedSource) {
		return e.Source
	}
	return emittedSpace + e.Source
}

// ReservedSource is the prefix of the sources of the engine's own events.
const ReservedSource = "procaas/"

// NotifySource is the source of the events that tell of the ends of runs. The pipeline sends them.
func NotifySource(pipeline string) string { return ReservedSource + "notify/" + pipeline }

// TaskSource is the source of the events that a pipeline's tasks become.
func TaskSource(pipeline string) string { return ReservedSource + "queue/" + pipeline }

// TaskEventID is the id of the event whose run makes attempts of a task. A task has more than one such run only if an earlier one was
// cancelled. n counts them from 1.
func TaskEventID(task int64, n int) string { return fmt.Sprintf("task-%d-%d", task, n) }

// Task returns the task that the run of the event is an attempt of. It returns false for other events.
func (e Event) Task() (pipeline string, id int64, ok bool) {
	pipeline, ok = strings.CutPrefix(e.Source, TaskSource(""))
	n := 0
	_, err := fmt.Sscanf(e.ID, "task-%d-%d", &id, &n)
	return pipeline, id, ok && err == nil
}

// SupersededBy is the reason why the run of a failed task ends: another task does its work again. why is the operator's reason.
func SupersededBy(task int64, why string) string {
	return strings.TrimSuffix(fmt.Sprintf("superseded by task %d: %s", task, why), ": ")
}

// Superseder returns the task of a reason that SupersededBy has made. It returns false for other reasons.
func Superseder(reason string) (task int64, ok bool) {
	_, err := fmt.Sscanf(reason, "superseded by task %d", &task)
	return task, err == nil
}

var percentEncoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// ConsoleSource is the prefix of the sources of events that people submit in the console. Their names
// follow it. Flows trust it as a signature, for example under an approval, so only the console may
// use it.
const ConsoleSource = "console/"

// IsReservedSource reports whether a source begins with procaas/ or console/. It also catches
// sources that only look like it to people or after decoding: other case, leading slashes, dots or
// spaces, backslashes, and URL encoding.
func IsReservedSource(source string) bool {
	for strings.Contains(source, "%") {
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
	if !below {
		return false
	}
	name = strings.TrimSpace(name) + "/"
	return name == ReservedSource || name == ConsoleSource
}

// A Receipt is the result of a submitted event.
type Receipt struct {
	Event     string // the event's id
	Run       string // the id of its run
	Duplicate bool   // the event was accepted before; Run is that run

	// Undecided says that the automaton may still refuse the event, because the state of the key
	// may change before the event's turn. Then the run ends ignored.
	Undecided bool

	// Key is the entity that the event belongs to: its own key, or the result of the flow's key
	// expression. With such an expression, the event's own key orders nothing.
	Key string
}
