package ui

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// Steering goes on with runs, or ends them.
type Steering interface {
	Retry(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Cancel(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Abandon(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Rerun(ctx context.Context, id, stage string, by store.Actor) (checkpoint.RunView, error)
	RetryAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
	CancelAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
}

// Switches switch, hold, limit and roll out by path.
type Switches interface {
	Controls(ctx context.Context) ([]guard.ControlView, error)
	ControlEffect(ctx context.Context, path string, change guard.ControlChange) (steering.ControlEffect, error)
	SetControl(ctx context.Context, path string, change guard.ControlChange, ifRevision int64, by store.Actor) (guard.ControlView, error)
	RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (int64, error)
	EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error)
}

// may refuses callers who may operate none of the paths.
func (c *Console) may(r *http.Request, paths ...string) error {
	g := c.o.Caller(r)
	switch {
	case !g.Has(credentials.RoleOperator):
		return &Refused{http.StatusForbidden, "You are signed in as " + cmp.Or(g.Name, "nobody") + ". Your token allows you to read, " +
			"and not to change anything."}
	case !slices.ContainsFunc(paths, g.Covers):
		return &Refused{http.StatusForbidden, "You are signed in as " + g.Name + ". Your token only allows changes of " +
			"" + strings.Join(g.Paths, ", ") + "."}
	}
	return nil
}

// by says who does something, for the audit.
func (c *Console) by(r *http.Request) store.Actor {
	return store.Actor{Name: c.o.Caller(r).Name, Reason: strings.TrimSpace(r.FormValue("reason"))}
}

// A switchForm switches one path.
type switchForm struct {
	Path string
	Set  []guard.ControlView // what is set there, in its parts
	Out  bool                // a handler there has left the flow by itself
}

// switches are the forms for those of the paths that the reader may switch.
func (c *Console) switches(r *http.Request, controls []guard.ControlView, paths ...string) (forms []switchForm) {
	handlers := c.o.Engine.Handlers()
	for _, path := range paths {
		if c.may(r, path) != nil {
			continue
		}
		f := switchForm{Path: path}
		for _, v := range guard.Apart(controls, time.Now()) {
			if v.Path == path {
				f.Set = append(f.Set, v)
			}
		}
		f.Out = slices.ContainsFunc(handlers, func(h stats.HandlerInfo) bool {
			return (h.Path == path || strings.HasPrefix(h.Path, path+"/")) && h.Fallback.IsOut()
		})
		forms = append(forms, f)
	}
	return forms
}

type controlData struct {
	Path     string
	Effect   steering.ControlEffect
	Words    string // what it does, in words
	Form     map[string]string
	Critical []string // handlers whose runs will not succeed when it is done; nothing without force
}

// controlFields are what the form of a control sends.
var controlFields = []string{"do", "for", "rate", "percent", "reason", "force"}

// control switches, holds, limits or rolls out; without confirm, it shows what that
// would do.
func (c *Console) control(w http.ResponseWriter, r *http.Request) error {
	path := r.PathValue("path")
	if err := c.may(r, path); err != nil {
		return err
	}
	if r.FormValue("do") == "on" {
		if err := c.lift(r.Context(), path, c.by(r)); err != nil {
			return err
		}
		return back(w, r, path)
	}
	asked, words, err := readControl(r)
	if err != nil {
		return err
	}
	if r.FormValue("confirm") == "yes" {
		if err := c.set(r.Context(), path, asked, c.by(r)); err != nil {
			return err
		}
		return back(w, r, path)
	}
	now, _, err := c.present(r.Context(), path)
	if err != nil {
		return err
	}
	change := beside(now, asked)
	effect, err := c.o.Engine.ControlEffect(r.Context(), path, change)
	var refused *guard.ControlError
	if errors.As(err, &refused) && !change.Force {
		// A critical handler may be left out by those who insist: they are asked.
		change.Force = true
		if effect, err = c.o.Engine.ControlEffect(r.Context(), path, change); err != nil {
			err = refused
		}
	}
	if err != nil {
		return err
	}
	d := controlData{Path: path, Effect: effect, Words: words, Form: map[string]string{}}
	for _, name := range controlFields {
		d.Form[name] = r.FormValue(name)
	}
	d.Critical = skipped(change, effect)
	c.show(w, r, http.StatusOK, "control", words+" "+path, d)
	return nil
}

// setTries is how often a change begins anew when others change the control at the same
// time.
const setTries = 5

// set changes a part of the control of a path, and leaves the rest of it as it is.
func (c *Console) set(ctx context.Context, path string, asked guard.ControlChange, by store.Actor) error {
	for try := 1; ; try++ {
		now, revision, err := c.present(ctx, path)
		if err != nil {
			return err
		}
		_, err = c.o.Engine.SetControl(ctx, path, beside(now, asked), revision, by)
		if try == setTries || !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// present returns what is set at a path, and its revision; 0 when nothing is.
func (c *Console) present(ctx context.Context, path string) (guard.Control, int64, error) {
	all, err := c.o.Engine.Controls(ctx)
	if err != nil {
		return guard.Control{}, 0, err
	}
	for _, v := range all {
		if v.Path == path {
			return v.Control.Present(time.Now()), v.Revision, nil
		}
	}
	return guard.Control{Enabled: true}, 0, nil
}

// beside puts what is asked for beside what is set already. A form asks for a switch, a
// limit or a share of runs, and the engine replaces all of them together: without this,
// who switches off would lift the limit that somebody else has set.
func beside(now guard.Control, asked guard.ControlChange) guard.ControlChange {
	if asked.RateLimit == "" && now.RateLimit != "" {
		asked.RateLimit, asked.Over, asked.LimitUntil = now.RateLimit, now.Over, timeOf(now.LimitUntil)
	}
	if asked.RolloutPercent == nil && now.RolloutPercent != nil {
		asked.RolloutPercent, asked.Force = now.RolloutPercent, asked.Force || now.Force
	}
	if asked.Enabled && now.Mode != "" {
		asked.Enabled, asked.Mode, asked.Force = now.Enabled, now.Mode, asked.Force || now.Force
		asked.Until, asked.Forever = timeOf(now.Until), now.Until == nil
	}
	return asked
}

// timeOf is the zero time where there is none.
func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// lift removes all that is set at a path, and puts the handlers below it back into the
// flow that have gone out of it by themselves: who lifts wants them to run.
func (c *Console) lift(ctx context.Context, path string, by store.Actor) error {
	_, removing := c.o.Engine.RemoveControl(ctx, path, anyRevision, by)
	var nothing *guard.ControlError
	if removing != nil && !errors.As(removing, &nothing) {
		return removing
	}
	ended, err := c.o.Engine.EndFallbacks(ctx, path, by)
	switch {
	case removing == nil && errors.As(err, new(*guard.ControlError)):
		return nil // the definition has no such path any more, and now nothing is set there
	case err != nil:
		return err
	case removing != nil && len(ended) == 0:
		return &Refused{http.StatusConflict, "Nothing is set at " + path + ", and no fallback has taken a handler there out of the flow."}
	}
	return nil
}

// skipped lists the critical handlers that a change leaves out: without them a run is
// not what it was meant to be.
func skipped(change guard.ControlChange, effect steering.ControlEffect) (paths []string) {
	leavesOut := change.Force && (!change.Enabled && change.Mode == guard.ModeSkip || change.RolloutPercent != nil &&
		*change.RolloutPercent < 100)
	for _, h := range effect.Handlers {
		if leavesOut && h.Critical {
			paths = append(paths, h.Path)
		}
	}
	return paths
}

// anyRevision lets a change replace whatever there is.
const anyRevision = -1

// back leads from what was done to where it shows.
func back(w http.ResponseWriter, r *http.Request, path string) error {
	to := Root + "pipelines/" + url.PathEscape(path)
	if strings.Count(path, "/") == 2 {
		to = handlerURL(path)
	} else if id, _, ok := strings.Cut(path, "/"); ok {
		to = Root + "pipelines/" + url.PathEscape(id)
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
	return nil
}

// readControl reads the form of a control.
func readControl(r *http.Request) (change guard.ControlChange, words string, err error) {
	change.Enabled = true
	lasting := r.FormValue("for")
	var until time.Time
	if lasting != "" && lasting != "forever" {
		d, err := datum.ParseDuration(lasting)
		if err != nil || d <= 0 {
			return change, "", &Refused{http.StatusBadRequest, "For how long: want a duration such as 30m or 2h, have " + strconv.Quote(lasting) +
				"."}
		}
		until = time.Now().Add(d)
	}
	switch do := r.FormValue("do"); do {
	case "off", "hold":
		change.Enabled, change.Mode, words = false, guard.ModeSkip, "Switch off"
		if do == "hold" {
			change.Mode, words = guard.ModeHold, "Hold"
		}
		change.Until, change.Forever, change.Force = until, lasting == "forever", r.FormValue("force") == "yes"
	case "limit":
		change.RateLimit, change.LimitUntil, words = strings.TrimSpace(r.FormValue("rate")), until, "Limit"
		if change.RateLimit == "" {
			return change, "", &Refused{http.StatusBadRequest, "Limit: want a rate such as 10/s."}
		}
	case "rollout":
		percent, err := strconv.ParseFloat(strings.TrimSpace(r.FormValue("percent")), 64)
		if err != nil {
			return change, "", &Refused{http.StatusBadRequest, "Roll out: want a share of runs in percent, from 0 to 100."}
		}
		change.RolloutPercent, change.Force, words = &percent, r.FormValue("force") == "yes", "Roll out"
	default:
		return change, "", &Refused{http.StatusBadRequest, "The form is damaged: it does not say what to do."}
	}
	return change, words, nil
}

// steer retries or cancels a run.
func (c *Console) steer(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	run, err := c.o.Engine.RunByID(r.Context(), id)
	if err != nil {
		return err
	}
	paths := []string{run.Pipeline}
	if r.FormValue("do") == "retry" {
		paths = append(paths, run.FailedPath) // the rest of the pipeline is left alone
	}
	if err := c.may(r, paths...); err != nil {
		return err
	}
	switch r.FormValue("do") {
	case "retry":
		_, err = c.o.Engine.Retry(r.Context(), id, c.by(r))
	case "cancel":
		_, err = c.o.Engine.Cancel(r.Context(), id, c.by(r))
	case "abandon":
		_, err = c.o.Engine.Abandon(r.Context(), id, c.by(r))
	case "rerun":
		var again checkpoint.RunView
		again, err = c.o.Engine.Rerun(r.Context(), id, r.FormValue("from"), c.by(r))
		id = again.ID
	default:
		err = &Refused{http.StatusBadRequest, "The form is damaged: it does not say what to do."}
	}
	if errors.Is(err, store.ErrUndoing) {
		err = nil // the page says so
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, Root+"runs/"+id, http.StatusSeeOther)
	return nil
}

// A bulk is what is done to the runs of a search.
type bulk struct {
	Do    string // as forms call it
	Words string // on buttons
	Would string // what the runs of the preview would do
	Did   string // what those did to which it was done
	Most  int    // runs at once

	run func(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
}

// bulkOf reads what is asked for, and to which runs.
func (c *Console) bulkOf(r *http.Request) (b bulk, f store.RunFilter, given map[string]string, err error) {
	f, given, err = filter(r)
	if err != nil {
		return b, f, given, err
	}
	path := cmp.Or(f.FailedPath, f.Pipeline)
	switch r.FormValue("do") {
	case "retry":
		b = bulk{Do: "retry", Words: "Retry", Would: "would resume from the handler that failed.", Did: "resumed.", run: c.o.Engine.RetryAll}
		if f.Status != model.Parked {
			f.Status = model.Failed
		}
		given["status"] = string(f.Status)
	case "cancel":
		b = bulk{
			Do: "cancel", Words: "Cancel", Did: "were cancelled.", run: c.o.Engine.CancelAll,
			Would: "have not ended and would be cancelled. They undo what they have done, where their pipelines say how.",
		}
		if strings.Join(slices.Collect(maps.Values(given)), "") == "" {
			return b, f, given, &Refused{http.StatusBadRequest, "Search first: all runs are not cancelled by saying nothing."}
		}
		f.Live = true
		path, _, _ = strings.Cut(path, "/") // a run is cancelled as a whole
	default:
		return b, f, given, &Refused{http.StatusBadRequest, "The form is damaged: it does not say what to do."}
	}
	b.Most = 500
	return b, f, given, c.may(r, path)
}

// redrive retries or cancels the runs that a search chooses; without confirm, it shows which they are.
func (c *Console) redrive(w http.ResponseWriter, r *http.Request) error {
	b, f, given, err := c.bulkOf(r)
	if err != nil {
		return err
	}
	d := runsData{Filter: given, Reason: r.FormValue("reason"), Bulk: b}
	if r.FormValue("confirm") == "yes" {
		f.Limit = b.Most
		done, err := b.run(r.Context(), f, c.by(r))
		if err != nil {
			return err
		}
		d.Done = &done
	} else {
		preview, err := c.o.Engine.Preview(r.Context(), f)
		if err != nil {
			return err
		}
		d.Preview = &preview
	}
	c.show(w, r, http.StatusOK, "redrive", b.Words+" runs", d)
	return nil
}

type signInData struct {
	Error string
	Next  string
}

func (c *Console) signIn(w http.ResponseWriter, r *http.Request) error {
	d := signInData{Next: ownPage(r.FormValue("next"))}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		err := c.o.SignIn(w, r, strings.TrimSpace(r.PostFormValue("token")))
		if err == nil {
			http.Redirect(w, r, d.Next, http.StatusSeeOther)
			return nil
		}
		d.Error, status = err.Error(), http.StatusUnauthorized
	}
	c.show(w, r, status, "signin", "Sign in", d)
	return nil
}

// ownPage returns the address of a page of the console; that of the first one for anything
// else. Browsers drop line breaks and tabs from addresses, and take backslashes for slashes.
func ownPage(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, Root) ||
		strings.ContainsFunc(u.Path, func(c rune) bool { return c < ' ' || c == '\\' }) {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery}).String()
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) error {
	if err := c.o.SignOut(w, r); err != nil {
		return err
	}
	http.Redirect(w, r, SignInPage, http.StatusSeeOther)
	return nil
}
