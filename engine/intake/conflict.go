package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/contracts"
	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A RunReader reads the run of an event that was accepted before.
type RunReader interface {
	// Run reads one run with its event. The error is [store.ErrNotFound] if there is none.
	Run(ctx context.Context, id string) (store.RunRecord, error)
}

// shownParts bounds how many differing parts an error names.
const shownParts = 10

// conflict returns the error of an event whose id belongs to an event with other content. It names the parts that
// differ, but not the first event's values: whoever may submit events need not be allowed to read runs. It reads
// nothing if the run before could not be read, and returns why this one cannot.
func (a *Acceptor) conflict(ctx context.Context, sent model.Event, run string, unread error) (refused, _ error) {
	var first store.RunRecord
	if unread == nil {
		first, unread = a.Runs.Run(ctx, run)
	}
	e := &Error{Code: "id_conflict", Field: "id"}
	what := ""
	switch {
	case errors.Is(unread, store.ErrNotFound):
		what, unread = "with other content; its run "+run+" is deleted, so nobody can tell what differs", nil
	case unread != nil:
		what = "with other content; its run " + run + " cannot be read now to tell what differs"
	default:
		e.Faults = differingParts(first.Event, sent)
		what = "with other content, as run " + run + ": here " + partsText(e.Faults)
	}
	e.Message = fmt.Sprintf("event %s of source %q was accepted before %s. To repeat that event, send it unchanged. To send another one, "+
		"give it an id of its own", sent.ID, sent.Source, what)
	return e, unread
}

// partsText lists differing parts for people.
func partsText(parts []contracts.Fault) string {
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.Path.String()+" "+p.Message)
	}
	return strings.Join(texts, ", ")
}

// differingParts lists the parts in which an event differs from the first one with its id, as [hashEvent] sees them.
func differingParts(first, sent model.Event) []contracts.Fault {
	var d difference
	d.part("type", first.Type, sent.Type)
	d.part("key", first.Key, sent.Key)
	if !sent.Time.IsZero() {
		d.part("time", model.TimeData(first.Time), model.TimeData(sent.Time))
	}
	d.part("at", model.TimeData(first.At), model.TimeData(sent.At))
	d.part("delay_tolerance", int(first.DelayTolerance), int(sent.DelayTolerance))
	d.part("priority", first.Priority, sent.Priority)
	d.part("labels", first.Labels, sent.Labels)
	d.values(datum.Path{"payload"}, first.Payload, sent.Payload)
	if d == nil {
		// The engine has set the time of an event without one, so it shows only as the last part that may differ.
		d.add(datum.Path{"time"}, "is missing")
	}
	if more := len(d) - shownParts; more > 0 {
		d = d[:shownParts]
		d[shownParts-1].Message += fmt.Sprintf(", and %d other parts differ", more)
	}
	return d
}

// A difference lists the parts of an event that differ from those of the first one.
type difference []contracts.Fault

func (d *difference) add(path datum.Path, message string) {
	*d = append(*d, contracts.Fault{Path: slices.Clone(path), Message: message})
}

// part compares a part beside the payload. The empty text, zero and nil are a part that is not there.
func (d *difference) part(name string, first, sent any) {
	none := func(v any) bool { return v == nil || v == "" || v == 0 }
	switch {
	case first == sent:
	case none(sent):
		d.add(datum.Path{name}, "is missing")
	case none(first):
		d.add(datum.Path{name}, "is new")
	default:
		d.add(datum.Path{name}, "has another value")
	}
}

// values compares two parts of the payload, mappings name by name and lists element by element.
func (d *difference) values(path datum.Path, first, sent any) {
	old, isMap := first.(map[string]any)
	now, bothMaps := sent.(map[string]any)
	oldList, isList := first.([]any)
	nowList, bothLists := sent.([]any)
	was, is := model.KindOf(first), model.KindOf(sent)
	switch {
	case isMap && bothMaps:
		d.members(path, old, now)
	case isList && bothLists && len(oldList) != len(nowList):
		d.add(path, fmt.Sprintf("has %d elements instead of %d", len(nowList), len(oldList)))
	case isList && bothLists:
		for i := range oldList {
			d.values(append(path, strconv.Itoa(i)), oldList[i], nowList[i])
		}
	case isSame(first, sent):
	case was != is:
		d.add(path, fmt.Sprintf("is %s instead of %s", is, was))
	default:
		d.add(path, "has another value")
	}
}

// members compares two mappings.
func (d *difference) members(path datum.Path, first, sent map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if now, ok := sent[name]; ok {
			d.values(append(path, name), first[name], now)
		} else {
			d.add(append(path, name), "is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if _, ok := first[name]; !ok {
			d.add(append(path, name), "is new")
		}
	}
}

// isSame reports whether two values are the same to [hashEvent], to which 5 and 5.0 are.
func isSame(first, sent any) bool {
	a, errA := datum.FormatJSON(first)
	b, errB := datum.FormatJSON(sent)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
