package engine

import (
	"context"
	"crypto/sha256"
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
	"procaas/engine/planner"
	"procaas/engine/store"
	"procaas/engine/tracing"
)

// The bounds of what an event may carry besides its payload.
const (
	maxKey      = 200 // bytes
	maxEventID  = 200
	maxType     = 200
	maxPriority = 1_000_000
)

// Submit accepts events of others, which may use no source that begins with procaas/.
// When it returns, those without an error are durable.
// Each event is accepted or refused for itself. The error is for all of them: with
// an [*OverloadError] none is stored; otherwise the store could not be reached, and
// it is unknown whether they were stored. Then submitting those again that have an
// id is safe.
func (e *Engine) Submit(ctx context.Context, events []Submission) ([]Submitted, error) {
	events = slices.Clone(events)
	for i := range events {
		events[i].Event.Inner = false
		if queue := events[i].Queue; queue != "" {
			events[i].Event.Source, events[i].Event.Inner = taskSource(queue), true
		}
	}
	return e.submit(ctx, events)
}

// submit is Submit for events of the engine's own as well.
func (e *Engine) submit(ctx context.Context, events []Submission) ([]Submitted, error) {
	d, now := e.library.Present(), e.clock.Now()
	out := make([]Submitted, len(events))
	runs := make([]model.Intake, 0, len(events))
	places := make([]int, 0, len(events))
	for i, s := range events {
		in, err := takeIn(ctx, d, s, now)
		if err != nil {
			out[i].Err = err
			continue
		}
		runs, places = append(runs, in), append(places, i)
	}
	if len(runs) == 0 {
		return out, nil
	}
	if err := e.loss.state(); err != nil {
		return nil, err
	}
	if over := e.overload(len(runs)); over != nil {
		e.shed(len(runs), shedOverload)
		return nil, over
	}
	results, err := e.accepts.call(ctx, runs)
	if err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	if err := e.awaitMoving(ctx, runs, results); err != nil {
		return nil, fmt.Errorf("accept events: %w", err)
	}
	for i, r := range results {
		if r.failure != nil {
			return nil, fmt.Errorf("accept events: %w", r.failure)
		}
		out[places[i]] = r.submitted(&runs[i])
	}
	return out, nil
}

// submitFirings is submit for the events of triggers; see [triggers.Firer].
func (e *Engine) submitFirings(ctx context.Context, events []model.Event) (refused []error, err error) {
	all := make([]Submission, len(events))
	for i, ev := range events {
		all[i].Event = ev
	}
	results, err := e.submit(ctx, all)
	for _, r := range results {
		var why *IntakeError
		if r.Err != nil && !errors.As(r.Err, &why) {
			return refused, r.Err
		}
		refused = append(refused, r.Err)
	}
	return refused, err
}

// How long events wait whose keys are on their way to another cluster of the inbox.
const (
	movingWait  = 5 * time.Second
	movingPause = 10 * time.Millisecond
)

// awaitMoving hands events in again whose keys are on their way, until they have arrived
// or it takes too long. Other senders do not wait for that. The events of a sender keep
// their order, since all of a key are refused together.
func (e *Engine) awaitMoving(ctx context.Context, runs []model.Intake, results []accepted) error {
	wait := movingPause
	for began := time.Now(); ; wait = min(2*wait, 10*movingPause) {
		var left []model.Intake
		var places []int
		for i, r := range results {
			if errors.Is(r.Err, store.ErrMoving) {
				left, places = append(left, runs[i]), append(places, i)
			}
		}
		if len(left) == 0 || time.Since(began) > movingWait || !clock.Pause(ctx, wait) {
			return nil
		}
		again, err := e.accepts.call(ctx, left)
		if err != nil {
			return err
		}
		for i, r := range again {
			results[places[i]] = r
		}
	}
}

// An accepted is what became of one event, or the failure of its whole batch.
type accepted struct {
	store.Accepted
	failure error
}

// submitted makes it readable for the sender.
func (a accepted) submitted(in *model.Intake) Submitted {
	switch {
	case errors.Is(a.Err, store.ErrConflict):
		return Submitted{Err: &IntakeError{
			Code: "id_conflict", Field: "id",
			Message: fmt.Sprintf("event %s of source %q was accepted before with another content; "+
				"send it with its own id", in.Event.ID, in.Event.Source),
		}}
	case errors.Is(a.Err, store.ErrRejected):
		return Submitted{Err: &IntakeError{
			Code: "event_rejected", Field: "type",
			Message: fmt.Sprintf("the present state of %s %s does not allow %s; it comes from %s",
				in.Flow, in.Key, in.Event.Type, statesText(in.From)),
		}}
	case a.Err != nil:
		return Submitted{Err: a.Err}
	}
	return Submitted{Receipt: model.Receipt{Event: in.Event.ID, Run: a.Run, Duplicate: a.Duplicate, Undecided: a.Undecided, Key: in.Key}}
}

// statesText lists states for people.
func statesText(from []string) string {
	from = slices.DeleteFunc(slices.Clone(from), func(s string) bool { return s == "" })
	if len(from) == 0 {
		return "no state at all"
	}
	return strings.Join(from, ", ")
}

// accept stores a batch of events. Those that may start at once become runs of
// this node in the same transaction, as far as it has room and no others wait.
func (e *Engine) accept(runs []model.Intake) []accepted {
	ctx, cancel := context.WithTimeout(context.Background(), clock.StoreTimeout)
	defer cancel()
	n, asked, number := e.node.Load(), 0, int64(0)
	if n != nil && !n.backlog.Load() {
		if asked = n.ask(min(len(runs), n.left())); asked > 0 {
			number = n.number
		}
	}
	// A run that this node has room for is its own in the same transaction: that saves the
	// claim, and the wait for it.
	now, owned, bundle := e.clock.Now(), 0, e.Bundle().Hash
	for i := range runs {
		runs[i].Bundle = bundle
		runs[i].Own = owned < asked && !runs[i].Event.At.After(now)
		if runs[i].Own {
			owned++
		}
	}
	results, err := e.o.Store.Inbox.Accept(ctx, number, runs)
	e.start(n, asked, results, err)
	switch {
	case errors.Is(err, store.ErrFenced) && number != 0:
		return e.accept(runs) // nothing was stored; by now the node takes no more
	case err != nil:
		e.metrics.failed("accept")
		e.writes.note(err, time.Now())
		return slices.Repeat([]accepted{{failure: err}}, len(runs))
	}
	e.writes.note(nil, time.Now())
	out := make([]accepted, len(runs))
	for i, r := range results {
		out[i].Accepted = r
		if errors.Is(r.Err, store.ErrAway) {
			e.metrics.failed("accept")
		}
		if r.Err == nil && !r.Duplicate {
			e.metrics.Accepted.Inc()
		}
	}
	return out
}

// start begins the runs that came with an Accept, and lets the node look for the
// others.
func (e *Engine) start(n *node, asked int, results []store.Accepted, err error) {
	if n == nil {
		return
	}
	var claimed []*store.Claimed
	for _, r := range results {
		if r.Claimed != nil {
			claimed = append(claimed, r.Claimed)
		}
	}
	switch {
	case errors.Is(err, store.ErrFenced):
		n.fence()
	case err != nil && asked > 0:
		n.lost.Store(true)
	}
	for _, r := range results {
		if asked > 0 && errors.Is(r.Err, store.ErrAway) {
			n.lost.Store(true)
		}
	}
	if asked > 0 {
		n.take(asked, claimed)
	}
	if len(claimed) < len(results) || err != nil {
		n.nudge()
	}
}

// takeIn checks an event and finds out where it belongs.
func takeIn(ctx context.Context, d *definitions.Definition, s Submission, now time.Time) (model.Intake, error) {
	ev := s.Event
	if err := checkEvent(ev); err != nil {
		return model.Intake{}, err
	}
	dedup, hash := ev.ID != "", s.Hash
	if hash == "" && dedup {
		var err error
		if hash, err = hashEvent(ev); err != nil {
			return model.Intake{}, invalid("payload", err.Error())
		}
	}
	if dedup {
		ev.Identity = model.IdentityOf(ev)
	} else {
		ev.ID = newID()
	}
	if ev.Time.IsZero() {
		ev.Time = now.UTC() // after the hash, or the event would not be the same when it comes again
	}
	in, err := route(d, ev)
	if err == nil {
		err = checkPayload(ctx, d.Bundle, ev)
	}
	in.Hash, in.Dedup = hash, dedup
	return in, err
}

// checkPayload refuses an event whose payload is not what its type promises.
func checkPayload(ctx context.Context, b *tree.Bundle, ev model.Event) error {
	err := b.Event(ev.Type).Contract().CheckContext(ctx, ev.Payload)
	var misfit *contracts.Error
	if err != nil && !errors.As(err, &misfit) {
		return fmt.Errorf("%w: %w", clock.ErrTooLong, err)
	}
	if err == nil {
		return nil
	}
	e := &IntakeError{Code: "invalid_payload", Message: misfit.Error()}
	for _, f := range misfit.Faults {
		e.Faults = append(e.Faults, contracts.Fault{Path: slices.Concat(datum.Path{"payload"}, f.Path), Message: f.Message})
	}
	return e
}

// route finds the flow, the key and the pipeline of an event.
func route(d *definitions.Definition, ev model.Event) (model.Intake, error) {
	served := d.Bundle.On(ev.Type)
	serves := ""
	if len(served) > 0 {
		serves = served[0].ID
	} else {
		served = d.Bundle.Awaiting(ev.Type) // a run may be waiting for it
	}
	if len(served) == 0 {
		message := fmt.Sprintf("no pipeline serves the event type %s", ev.Type)
		if near := diag.Suggest(ev.Type, d.Events); near != "" {
			message += fmt.Sprintf("; did you mean %s?", near)
		}
		return model.Intake{}, &IntakeError{Code: "unknown_event_type", Field: "type", Message: message}
	}
	in := model.Intake{ID: d.RunID(ev), Event: ev, Flow: planner.FlowID(served[0]), Pipeline: serves, Key: ev.Key, Ordered: true}
	flow := d.Bundle.Flow(served[0].Flow)
	if flow == nil {
		// Nothing is kept between such events, so a failed one need not block
		// those that follow.
		if ev.Key == "" {
			in.Key, in.Ordered = ev.ID, false
		}
		return in, nil
	}
	in.Block = flow.OnFailure != "skip"
	if states := d.From[flow.ID]; states != nil {
		in.From = states[ev.Type]
	}
	var err error
	in.Key, err = flowKey(flow, ev)
	return in, err
}

// flowKey finds the entity of an event.
func flowKey(f *tree.Flow, ev model.Event) (string, error) {
	if f.Key.IsNull() {
		if ev.Key == "" {
			return "", &IntakeError{
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
		return "", &IntakeError{
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
		return "", &IntakeError{
			Code: "missing_key", Field: field,
			Message: fmt.Sprintf("event %s has no key: flow %s takes it from %s, which is missing or empty", ev.Type, f.ID, field),
		}
	case !ok:
		return "", invalid(field, fmt.Sprintf("the key of flow %s: want a string or an integer, have %s", f.ID, model.KindOf(v)))
	}
	if why := checkLabel(key, maxKey); why != "" {
		return "", invalid(field, fmt.Sprintf("the key of flow %s: %s", f.ID, why))
	}
	return key, nil
}

// checkEvent refuses what could not be stored or would not be understood.
func checkEvent(ev model.Event) error {
	for _, label := range []struct {
		field, value string
		longest      int
	}{
		{"type", ev.Type, maxType},
		{"id", ev.ID, maxEventID},
		{"source", ev.Source, maxEventID},
		{"key", ev.Key, maxKey},
		{"traceparent", ev.TraceParent, maxEventID},
		{"tracestate", ev.TraceState, tracing.MaxState},
	} {
		if why := checkLabel(label.value, label.longest); why != "" {
			return invalid(label.field, label.field+": "+why)
		}
	}
	switch {
	case !ev.Inner && model.IsReservedSource(ev.Source):
		return invalid("source", fmt.Sprintf("source: %q is reserved: sources under %s are those of the engine's own events; "+
			"name the program that sends the event, such as orders, or leave source out", ev.Source, model.ReservedSource))
	case ev.Type == "":
		return invalid("type", "type: want the type of the event, have none")
	case ev.Priority < -maxPriority || ev.Priority > maxPriority:
		return invalid("priority", fmt.Sprintf("priority: want %d to %d, have %d", -maxPriority, maxPriority, ev.Priority))
	case ev.DelayTolerance < 0:
		return invalid("delay_tolerance", fmt.Sprintf("delay_tolerance: want 0s or more, have %s", ev.DelayTolerance))
	case !ev.At.IsZero() && (ev.At.Year() < 1970 || ev.At.Year() > 9999):
		return invalid("at", fmt.Sprintf("at: want a time from 1970 to 9999, have %s", ev.At.Format(time.RFC3339)))
	case !ev.Time.IsZero() && (ev.Time.Year() < 1 || ev.Time.Year() > 9999):
		return invalid("time", fmt.Sprintf("time: want a time up to 9999, have %s", ev.Time.Format(time.RFC3339)))
	}
	if err := model.CheckData(ev.Payload); err != nil {
		return invalid("payload", "payload: "+err.Error())
	}
	return nil
}

// checkLabel tells what is wrong with a short text; empty when nothing is.
func checkLabel(s string, longest int) string {
	if len(s) > longest {
		return fmt.Sprintf("want at most %d bytes, have %d", longest, len(s))
	}
	if !utf8.ValidString(s) {
		return "want a text in UTF-8, have other bytes"
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Sprintf("want printable text, have %q", s)
	}
	return ""
}

// invalid refuses an event.
func invalid(field, message string) error {
	return &IntakeError{Code: "invalid_event", Field: field, Message: message}
}

// hashEvent tells events of one id apart by what their sender said.
func hashEvent(ev model.Event) (string, error) {
	data, err := datum.FormatJSON(map[string]any{
		"type": ev.Type, "key": ev.Key, "payload": ev.Payload, "time": model.TimeData(ev.Time),
		"at": model.TimeData(ev.At), "delay_tolerance": int(ev.DelayTolerance), "priority": ev.Priority,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// newID gives an id that sorts by the time it was made.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
