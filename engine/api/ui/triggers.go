package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"procaas/engine/guard"
	"procaas/engine/intake"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// Firing lists and fires triggers.
type Firing interface {
	Triggers(ctx context.Context, next int, reads func(pipelines []string) bool) ([]triggers.TriggerView, error)
	RunTrigger(ctx context.Context, id, firing string, by store.Actor) (steering.FiredNow, error)
	BackfillTrigger(ctx context.Context, id string, how steering.Backfill, by store.Actor) (steering.Backfilled, error)

	// Now is the time by the store's clock.
	Now() time.Time
}

// nextFirings is how many of the next due times the page has.
const nextFirings = 10

type triggersData struct {
	All    []triggerRow
	Done   *steering.Backfilled // of a backfill, also of a dry run; nil for none
	From   string               // the window of Done
	To     string
	Reason string
}

// A triggerRow is a trigger on the page.
type triggerRow struct {
	triggers.TriggerView
	Steers bool   // the reader may fire and pause it
	Fresh  string // the id of a firing, so that a form that is sent twice fires once
}

// Zoned formats a time in the time zone of the trigger.
func (t triggerRow) Zoned(at time.Time) string {
	if zone, err := time.LoadLocation(t.TimeZone); err == nil {
		at = at.In(zone)
	}
	return at.Format("2006-01-02 15:04:05 MST")
}

// Skips says why the trigger did not fire at a due time after its last firing. It is empty if it did.
func (t triggerRow) Skips() string {
	if t.Skip == nil || t.Last != nil && !t.Skip.Time.After(t.Last.Time) {
		return ""
	}
	switch t.Skip.Reason {
	case triggers.Running:
		return "skipped: still running"
	case triggers.Missed:
		return "skipped: no node ran"
	}
	return "skipped: " + t.Skip.Reason
}

// clocks are the pages of triggers.
type clocks struct{ *Console }

// triggers shows the triggers.
func (c clocks) triggers(w http.ResponseWriter, r *http.Request) error {
	return c.list(w, r, triggersData{})
}

func (c clocks) list(w http.ResponseWriter, r *http.Request, d triggersData) error {
	all, err := c.o.Engine.Triggers(r.Context(), nextFirings, func([]string) bool { return true })
	if err != nil {
		return err
	}
	for _, t := range all {
		d.All = append(d.All, triggerRow{t, c.may(r, append(t.Pipelines, triggers.Path(t.ID))...) == nil, intake.NewID()})
	}
	c.show(w, r, http.StatusOK, "triggers", "Triggers", d)
	return nil
}

// steer pauses, resumes or fires a trigger.
func (c clocks) steer(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	path := triggers.Path(id)
	if err := c.may(r, append(c.o.Engine.SteeredBy(path), path)...); err != nil {
		return err
	}
	switch r.FormValue("do") {
	case "pause":
		if err := c.pause(r, path); err != nil {
			return err
		}
	case "resume":
		if err := (switching{c.Console}).lift(r.Context(), path, c.by(r)); err != nil {
			return err
		}
	case "run":
		fired, err := c.o.Engine.RunTrigger(r.Context(), id, r.FormValue("id"), c.by(r))
		if err != nil {
			return err
		}
		http.Redirect(w, r, Root+"runs/"+url.PathEscape(fired.Run), http.StatusSeeOther)
		return nil
	case "backfill":
		return c.backfill(w, r, id)
	default:
		return &Refused{http.StatusBadRequest, "The form is damaged: it does not say what to do."}
	}
	http.Redirect(w, r, Root+"triggers", http.StatusSeeOther)
	return nil
}

// pause holds the path of a trigger for the time of the form.
func (c clocks) pause(r *http.Request, path string) error {
	r.Form.Set("do", guard.ModeHold)
	change, _, err := readControl(r)
	if err != nil {
		return err
	}
	return switching{c.Console}.set(r.Context(), path, change, c.by(r))
}

// backfill shows which due times of a window would fire, and fires them when the reader confirms.
func (c clocks) backfill(w http.ResponseWriter, r *http.Request, id string) error {
	d := triggersData{From: strings.TrimSpace(r.FormValue("from")), To: strings.TrimSpace(r.FormValue("to")), Reason: c.by(r).Reason}
	how := steering.Backfill{DryRun: r.FormValue("confirm") != "yes", Forgot: r.FormValue("forgotten") == "yes", To: c.o.Engine.Now()}
	for _, field := range []struct {
		name, text string
		at         *time.Time
	}{{"From", d.From, &how.From}, {"To", d.To, &how.To}} {
		if field.text == "" && field.name == "To" {
			continue
		}
		at, err := time.Parse(time.RFC3339, field.text)
		if err != nil {
			return &Refused{http.StatusBadRequest, field.name + `: want a time such as 2026-11-21T00:00:00Z, have "` + field.text + `".`}
		}
		*field.at = at
	}
	done, err := c.o.Engine.BackfillTrigger(r.Context(), id, how, c.by(r))
	if err != nil {
		return err
	}
	d.Done, d.To = &done, how.To.Format(time.RFC3339Nano)
	if done.Next != nil && !done.DryRun {
		d.From = done.Next.UTC().Format(time.RFC3339Nano)
	}
	return c.list(w, r, d)
}
