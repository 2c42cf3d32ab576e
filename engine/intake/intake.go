package intake

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/tracing"
)

// A Submission is a submitted event.
type Submission struct {
	Event  model.Event // without an id, each submission is a new event
	Hash   string      // of what the sender sent; computed from the event if empty
	Signed bool        // by the console, which may use the source of the person who submits it
	Queue  string      // the pipeline for which the event is a task; the engine sets its source; empty for none
}

// A Submitted is the result of one submission: a receipt or an error. The error is an [*Error] if
// the sender is at fault.
type Submitted struct {
	Receipt model.Receipt // if Err is nil
	Err     error         // the event is not stored
}

// An Error says why an event is refused.
type Error struct {
	Code    string // stable: unknown_event_type, missing_key, event_rejected, …
	Message string // for people: what was found, what was expected, and how to mend it
	Field   string // the wrong field of the event, such as payload.order-id; may be empty

	Faults []contracts.Fault // what is wrong with a payload that does not match its schema
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// These bound what an event may contain besides its payload.
const (
	MaxKey      = 1024 // bytes, as many as names of objects in stores of files have
	maxEventID  = 200
	maxType     = 200
	MaxPriority = 1_000_000
)

// Take checks an event and routes it.
func Take(ctx context.Context, d *definitions.Definition, s Submission, now time.Time) (model.Intake, error) {
	ev := s.Event
	if err := checkEvent(&ev, s.Signed); err != nil {
		return model.Intake{}, err
	}
	dedup, hash := ev.ID != "", s.Hash
	if hash == "" && dedup {
		var err error
		if hash, err = hashEvent(&ev); err != nil {
			return model.Intake{}, invalid("payload", err.Error())
		}
	}
	if dedup {
		ev.Identity = model.IdentityOf(ev)
	} else {
		ev.ID = NewID()
	}
	if ev.Time.IsZero() {
		ev.Time = model.Stamp(now) // after the hash, or a repeated event would differ
	}
	in, err := Route(d, ev)
	if ev.Rerun != nil {
		in.ID = ev.ID
	}
	if err == nil {
		err = checkPayload(ctx, d.Bundle, &ev)
	}
	in.Hash, in.Dedup = hash, dedup
	return in, err
}

// checkPayload refuses a payload that does not match the schema of the event's type.
func checkPayload(ctx context.Context, b *tree.Bundle, ev *model.Event) error {
	err := b.Event(ev.Type).Contract().CheckContext(ctx, ev.Payload)
	var misfit *contracts.Error
	if err != nil && !errors.As(err, &misfit) {
		return fmt.Errorf("%w: %w", clock.ErrTooLong, err)
	}
	if err == nil {
		return nil
	}
	e := &Error{Code: "invalid_payload", Message: misfit.Error()}
	for _, f := range misfit.Faults {
		e.Faults = append(e.Faults, contracts.Fault{Path: slices.Concat(datum.Path{"payload"}, f.Path), Message: f.Message})
	}
	return e
}

// Route returns the flow, the key and the pipeline of an event.
func Route(d *definitions.Definition, ev model.Event) (model.Intake, error) {
	served := d.Bundle.On(ev.Type)
	serves := ""
	if len(served) > 0 && served[0].Sends != nil && ev.Source != model.NotifySource(ev.Type) {
		return model.Intake{}, &Error{
			Code: "unknown_event_type", Field: "type",
			Message: fmt.Sprintf("events of the type %s come only from the ends of runs; nobody else may submit or emit them", ev.Type),
		}
	}
	if len(served) > 0 {
		serves = served[0].ID
	} else {
		served = d.Bundle.Awaiting(ev.Type) // a run may wait for it
	}
	if len(served) == 0 {
		message := fmt.Sprintf("no pipeline serves the event type %s", ev.Type)
		if near := diag.Suggest(ev.Type, d.Events); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		return model.Intake{}, &Error{Code: "unknown_event_type", Field: "type", Message: message}
	}
	in := model.Intake{ID: d.RunID(ev), Event: ev, Flow: served[0].FlowID(), Pipeline: serves, Key: ev.Key, Ordered: true}
	flow := d.Bundle.Flow(served[0].Flow)
	if flow == nil {
		// Such events share no state, so a failed one need not block later ones.
		if ev.Key == "" {
			in.Key, in.Ordered = ev.ID, false
		}
		return in, nil
	}
	in.Block = flow.OnFailure != "skip"
	in.Keep = d.Keeps(flow.ID, ev.Type) > 0
	if states := d.From[flow.ID]; states != nil && !in.Keep {
		in.From = states[ev.Type]
	}
	var err error
	in.Key, err = FlowKey(flow, ev)
	return in, err
}

// FlowKey returns the key of an event in a flow. The error is an [*Error].
func FlowKey(f *tree.Flow, ev model.Event) (string, error) {
	if f.Key.IsNull() {
		if ev.Key == "" {
			return "", &Error{
				Code: "missing_key", Field: "key",
				Message: fmt.Sprintf("event %s has no key; flow %s needs one", ev.Type, f.ID),
			}
		}
		return ev.Key, nil
	}
	field := "payload"
	if reads := f.Key.Reads(); len(reads) > 0 && len(reads[0].Path) > 1 {
		field = datum.Path(reads[0].Path[1:]).String()
	}
	v, err := f.Key.Eval(datum.Env{"event": model.EventData(ev)})
	if err != nil {
		return "", &Error{
			Code: "missing_key", Field: field,
			Message: fmt.Sprintf("the key of flow %s cannot be found in event %s: %v", f.ID, ev.Type, err),
		}
	}
	key, ok := v.(string)
	if i, isInt := v.(int); isInt {
		key, ok = strconv.Itoa(i), true
	}
	switch {
	case v == nil || key == "" && ok:
		return "", &Error{
			Code: "missing_key", Field: field,
			Message: fmt.Sprintf("event %s has no key: flow %s takes it from %s, which is missing or empty", ev.Type, f.ID, field),
		}
	case !ok:
		return "", invalid(field, fmt.Sprintf("the key of flow %s: want a string or an integer, have %s", f.ID, model.KindOf(v)))
	}
	if why := checkLabel(key, MaxKey); why != "" {
		return "", invalid(field, fmt.Sprintf("the key of flow %s: %s", f.ID, why))
	}
	return key, nil
}

// checkEvent refuses events that could not be stored or understood. signed says that the source is
// the console's.
func checkEvent(ev *model.Event, signed bool) error {
	for _, label := range []struct {
		field, value string
		longest      int
	}{
		{"type", ev.Type, maxType},
		{"id", ev.ID, maxEventID},
		{"source", ev.Source, maxEventID},
		{"key", ev.Key, MaxKey},
		{"traceparent", ev.TraceParent, maxEventID},
		{"tracestate", ev.TraceState, tracing.MaxState},
	} {
		if why := checkLabel(label.value, label.longest); why != "" {
			return invalid(label.field, label.field+": "+why)
		}
	}
	switch {
	case !ev.Inner && model.IsReservedSource(ev.Source) && (!signed || !strings.HasPrefix(ev.Source, model.ConsoleSource)):
		return invalid("source", fmt.Sprintf("source: %q is reserved: sources under %s are those of the engine's own events, and those "+
			"under %s name people who submit events in the console; name the program that sends the event, such as orders, or leave source out",
			ev.Source, model.ReservedSource, model.ConsoleSource))
	case ev.Type == "":
		return invalid("type", "type: want the type of the event, have none")
	case ev.Priority < -MaxPriority || ev.Priority > MaxPriority:
		return invalid("priority", fmt.Sprintf("priority: want %d to %d, have %d", -MaxPriority, MaxPriority, ev.Priority))
	case ev.DelayTolerance < 0:
		return invalid("delay_tolerance", fmt.Sprintf("delay_tolerance: want 0s or more, have %s", ev.DelayTolerance))
	case !ev.At.IsZero() && (ev.At.Year() < 1970 || ev.At.Year() > 9999):
		return invalid("at", fmt.Sprintf("at: want a time from 1970 to 9999, have %s", ev.At.Format(time.RFC3339)))
	case !ev.Time.IsZero() && (ev.Time.Year() < 1 || ev.Time.Year() > 9999):
		return invalid("time", fmt.Sprintf("time: want a time up to 9999, have %s", ev.Time.Format(time.RFC3339)))
	}
	if ev.Labels != "" {
		if _, err := model.ParseLabels(ev.Labels); err != nil {
			return invalid("labels", "labels: "+err.Error())
		}
	}
	if err := model.CheckData(ev.Payload); err != nil {
		return invalid("payload", "payload: "+err.Error())
	}
	return nil
}

// checkLabel returns what is wrong with a short text, or empty.
func checkLabel(s string, longest int) string {
	if len(s) > longest {
		return fmt.Sprintf("want at most %d bytes, have %d", longest, len(s))
	}
	if datum.IsPlainText(s) && !strings.Contains(s, "\x7f") {
		return ""
	}
	if !utf8.ValidString(s) {
		return "want a text in UTF-8, have other bytes"
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Sprintf("want printable text, have %q", s)
	}
	return ""
}

// invalid returns the error of a refused event.
func invalid(field, message string) error {
	return &Error{Code: "invalid_event", Field: field, Message: message}
}

// hashEvent distinguishes events of one id by what their sender sent. It is the hash of canonical JSON. Do not change that:
// stores keep the hashes of events that earlier versions accepted.
func hashEvent(ev *model.Event) (string, error) {
	var few [1024]byte // enough for most events
	b := appendTime(append(few[:0], `{"at":`...), ev.At)
	b = strconv.AppendInt(append(b, `,"delay_tolerance":`...), int64(ev.DelayTolerance), 10)
	b = datum.AppendText(append(b, `,"key":`...), ev.Key)
	if ev.Labels != "" {
		b = datum.AppendText(append(b, `,"labels":`...), ev.Labels)
	}
	b, err := datum.AppendJSON(append(b, `,"payload":`...), ev.Payload)
	if err != nil {
		return "", err
	}
	b = strconv.AppendInt(append(b, `,"priority":`...), int64(ev.Priority), 10)
	b = appendTime(append(b, `,"time":`...), ev.Time)
	b = append(datum.AppendText(append(b, `,"type":`...), ev.Type), '}')
	sum := sha256.Sum256(b)
	var digits [2 * sha256.Size]byte
	hex.Encode(digits[:], sum[:])
	return string(digits[:]), nil
}

// appendTime appends a time as JSON has it, or null.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return datum.AppendTime(b, t.UTC())
}

// idDigits are the digits of ids, in the order of their bytes.
var idDigits = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewID returns an id that sorts by its creation time. It is a UUID in 26 digits instead of 36: a
// run writes its ids ten times to the log of the store.
func NewID() string {
	id := uuid.Must(uuid.NewV7())
	var digits [26]byte
	idDigits.Encode(digits[:], id[:])
	return string(digits[:])
}

// An OverloadError refuses events because they would wait too long. None of them is stored.
type OverloadError struct {
	Wait  time.Duration // how long the events would have waited, roughly
	After time.Duration // when to send them again
}

// Error implements error.
func (e *OverloadError) Error() string {
	return fmt.Sprintf("events come faster than the store writes: these would wait for %s", e.Wait.Round(time.Millisecond))
}
