package ui

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/api/ui/words"
	"procaas/engine/guard"
	"procaas/engine/stats"
	"procaas/engine/steering"
	"procaas/engine/store"
)

// Switches switch, hold, limit and roll out by path.
type Switches interface {
	Controls(ctx context.Context) ([]guard.ControlView, error)
	ControlEffect(ctx context.Context, path string, change guard.ControlChange) (steering.ControlEffect, error)
	SetControl(ctx context.Context, path string, change guard.ControlChange, ifRevision int64, by store.Actor) (guard.ControlView, error)
	RemoveControl(ctx context.Context, path string, ifRevision int64, by store.Actor) (int64, error)
	SteeredBy(path string) []string
	EndFallbacks(ctx context.Context, path string, by store.Actor) ([]string, error)
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
var controlFields = []string{"do", "for", "rate", "time", "percent", "reason", "force"}

// switching are the pages that switch, hold, limit and roll out.
type switching struct{ *Console }

// control switches, holds, limits or rolls out; without confirm, it shows what that
// would do.
func (c switching) control(w http.ResponseWriter, r *http.Request) error {
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
	if errors.As(err, &refused) && !change.Force && !change.DeadlineForce {
		// A critical handler may be left out, or bound, by those who insist: they are asked.
		change.Force, change.DeadlineForce = asked.Deadline == "", asked.Deadline != ""
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
func (c switching) set(ctx context.Context, path string, asked guard.ControlChange, by store.Actor) error {
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
func (c switching) present(ctx context.Context, path string) (guard.Control, int64, error) {
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
	if asked.Deadline == "" && now.Deadline != "" {
		asked.Deadline, asked.DeadlineForce, asked.DeadlineUntil = now.Deadline, now.DeadlineForce, timeOf(now.DeadlineUntil)
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
func (c switching) lift(ctx context.Context, path string, by store.Actor) error {
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
	skips := !change.Enabled && change.Mode == guard.ModeSkip
	rollsOut := change.RolloutPercent != nil && *change.RolloutPercent < 100
	leavesOut := change.Force && (skips || rollsOut) || change.DeadlineForce
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
		to = words.HandlerURL(path)
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
	case "deadline":
		change.Deadline, change.DeadlineUntil, words = strings.TrimSpace(r.FormValue("time")), until, "Bound"
		change.DeadlineForce = r.FormValue("force") == "yes"
		switch {
		case change.Deadline == "":
			return change, "", &Refused{http.StatusBadRequest, "Deadline: want a duration such as 300ms."}
		case lasting == "forever":
			return change, "", &Refused{http.StatusBadRequest, "Deadline: it must end. Say for how long, such as 1h, and put it into the file to keep it."}
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
