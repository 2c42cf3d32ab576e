package ui

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// Steering resumes runs, or ends them.
type Steering interface {
	Retry(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Cancel(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Abandon(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Rerun(ctx context.Context, id, stage string, by store.Actor) (checkpoint.RunView, error)
	RetryAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
	CancelAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
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

// steer retries or cancels a run.
func (c runPages) steer(w http.ResponseWriter, r *http.Request) error {
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
func (c runPages) bulkOf(r *http.Request) (b bulk, f store.RunFilter, given map[string]string, err error) {
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
func (c runPages) redrive(w http.ResponseWriter, r *http.Request) error {
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
