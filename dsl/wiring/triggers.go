package wiring

import (
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/merge"
	"procaas/dsl/rules"
	"procaas/dsl/tree"

	// Zones must not depend on the machine that validates.
	_ "time/tzdata"
)

// Triggers checks the times of triggers, and that pipelines serve their events.
func Triggers(w *merge.Whole, r *diag.Reporter) {
	for _, t := range w.Bundle.Triggers {
		checkTrigger(w, t, r)
	}
}

// checkTrigger checks the times of a trigger, and that a pipeline serves its event.
func checkTrigger(w *merge.Whole, t *tree.Trigger, r *diag.Reporter) {
	at := t.PlaceOf("id", t.Span)
	switch {
	case t.Every != 0 && t.Cron != "":
		r.Errorf(t.PlaceOf("cron", at), rules.TriggerTime, "keep one of them", "trigger %q has both every and cron", t.ID)
	case t.Every == 0 && t.Cron == "":
		r.Errorf(at, rules.TriggerTime, `write every: 1m or cron: "*/5 * * * *"`, "trigger %q does not say when it fires", t.ID)
	}
	if t.Cron != "" {
		if problem := checkCron(t.Cron); problem != "" {
			r.Errorf(t.PlaceOf("cron", at), rules.Cron, "the fields are minute, hour, day, month, weekday", "%s", problem)
		}
	}
	if t.Cron != "" && checkCron(t.Cron) == "" && eitherDay(t.Cron) {
		fields := strings.Fields(t.Cron)
		r.Advisef(t.PlaceOf("cron", at), rules.Cron, "write * for one of them, or leave it so",
			"trigger %q fires on the days %s and also on the weekdays %s: one of the two is enough", t.ID, fields[2], fields[4])
	}
	// Local would mean another zone on each node.
	zone, err := time.LoadLocation(t.TimeZone)
	if err != nil || t.TimeZone == "Local" {
		r.Errorf(t.PlaceOf("time-zone", at), rules.TimeZone, "want an IANA name such as Europe/Berlin, or UTC",
			"unknown time zone %q", t.TimeZone)
	} else if t.Cron != "" && checkCron(t.Cron) == "" {
		if what, otherwise := shifted(t.Cron, zone); what != "" {
			r.Advisef(t.PlaceOf("cron", at), rules.Cron, "choose a time that comes once each day, such as "+otherwise+", or leave it so",
				"trigger %q goes by the clock in %s: %s", t.ID, t.TimeZone, what)
		}
	}
	if waits := t.Overlap == "buffer-one" || t.Overlap == "cancel-other"; waits && t.Key == "" && isUnordered(w, t) {
		r.Errorf(t.PlaceOf("overlap", at), rules.TriggerTime, "add a key to the trigger, such as key: main, or a flow to its pipeline; or write overlap: skip",
			"overlap: %s of trigger %q needs runs that go one after another, and events without a key run at once", t.Overlap, t.ID)
	}
	if t.Event != "" && w.Bundle.Index.Serving[t.Event] == nil && w.Bundle.Index.Awaiting[t.Event] == nil {
		unknownEvent(w, t, r)
	}
}

// isUnordered reports whether events of a trigger without a key run at once, because no flow orders them.
func isUnordered(w *merge.Whole, t *tree.Trigger) bool {
	served := w.Bundle.Index.Serving[t.Event]
	if len(served) == 0 {
		served = w.Bundle.Index.Awaiting[t.Event]
	}
	return len(served) > 0 && served[0].Flow == ""
}

// unknownEvent reports a trigger whose event no pipeline serves.
func unknownEvent(w *merge.Whole, t *tree.Trigger, r *diag.Reporter) {
	if w.Partial {
		return // the pipeline may be in an unreadable file
	}
	r.Warnf(t.PlaceOf("event", t.Span), rules.TriggerEvent, r.DidYouMean(t.Event, diag.NamesIn(w.Bundle.Index.Serving)),
		"no pipeline serves event type %q", t.Event)
}
