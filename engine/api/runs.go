package api

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"procaas/engine"
)

// A Page is a part of a list.
type Page[T any] struct {
	Items []T     `json:"items" doc:"The elements of this page."`
	Next  *string `json:"next" doc:"The cursor of the next page; null at the end."`
}

// pageOf makes a page. Items is an array even when it is empty: programs loop over it.
func pageOf[T any](items []T, next string) Page[T] {
	p := Page[T]{Items: items}
	if items == nil {
		p.Items = []T{}
	}
	if next != "" {
		p.Next = &next
	}
	return p
}

// The number of elements on one page: when nobody says, and at most.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

// statuses lists the values of a run's status.
var statuses = []engine.Status{
	engine.Waiting, engine.Running, engine.Parked, engine.Succeeded, engine.Failed, engine.Stopped, engine.Ignored,
}

func (s *server) getRun(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "id")
	if err != nil {
		return err
	}
	run, err := s.engine.RunByID(r.Context(), id)
	if err != nil {
		return runProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, run)
}

func (s *server) explainRun(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "id")
	if err != nil {
		return err
	}
	f := queryFields(r.URL.Query())
	path := f.label("path", maxName)
	if path == "" && len(f.faults) == 0 {
		f.fault("path", "want the path of a handler, such as new-order/notify/driver")
	}
	if err := badParameter(f.faults); err != nil {
		return err
	}
	why, err := s.engine.Explain(r.Context(), id, path)
	if errors.Is(err, engine.ErrNoHandler) {
		return refuse(codeHandlerNotFound, "%s", err)
	}
	if err != nil {
		return runProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, why)
}

func (s *server) listRuns(w http.ResponseWriter, r *http.Request) error {
	filter, err := runFilter(r.URL.Query())
	if err != nil {
		return err
	}
	runs, next, err := s.engine.List(r.Context(), filter)
	if errors.Is(err, engine.ErrCursor) {
		return badParameter([]Fault{{Location: "query/cursor", Message: wrongCursor(cursorRuns)}})
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(runs, sealCursor(cursorRuns, next)))
}

// runFilter reads the query of a list of runs.
func runFilter(q url.Values) (engine.RunFilter, error) {
	f := queryFields(q)
	filter := f.runFilter()
	filter.LeftOut = f.label("left_out", maxName)
	filter.Limit, filter.Cursor = f.pageSize(), f.cursor(cursorRuns)
	if f.boolean("in_flight") {
		filter.Live, filter.Begun = true, true
	}
	return filter, badParameter(f.faults)
}

// badParameter tells all faults of a query, a path or headers in one problem; nil when there
// are none.
func badParameter(faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return refuse(codeInvalidParameter, "%s: %s", faults[0].Location, faults[0].Message).at(faults...)
}

func (s *server) retryRun(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "id")
	if err != nil {
		return err
	}
	reason, err := s.readReason(w, r)
	if err != nil {
		return err
	}
	if err := s.maySteer(r, id, func(v engine.RunView) []string { return []string{v.Pipeline, v.FailedPath} }); err != nil {
		return err
	}
	run, err := s.engine.Retry(r.Context(), id, actor(r, reason))
	if errors.Is(err, engine.ErrConflict) {
		return refuse(codeRunNotFailed, "run %s has not failed, nor does it wait for an operator: there is nothing to retry", id)
	}
	if err != nil {
		return runProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, run)
}

func (s *server) cancelRun(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "id")
	if err != nil {
		return err
	}
	abandon := false
	reason, err := s.readSteering(w, r, func(f *fields) { abandon = f.declines("compensate") })
	if err != nil {
		return err
	}
	if err := s.maySteer(r, id, func(v engine.RunView) []string { return []string{v.Pipeline} }); err != nil {
		return err
	}
	end := s.engine.Cancel
	if abandon {
		end = s.engine.Abandon
	}
	run, err := end(r.Context(), id, actor(r, reason))
	switch {
	case errors.Is(err, engine.ErrConflict):
		return refuse(codeRunFinished, "run %s has finished; there is nothing to cancel", id)
	case errors.Is(err, engine.ErrUndoing):
		return refuse(codeRunUndoing, "run %s is cancelled already, and undoes what it has done; \"compensate\": false (--no-compensate) ends it as it is", id)
	case err != nil:
		return runProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, run)
}

// maySteer refuses a caller whose grant covers none of the paths of a run.
func (s *server) maySteer(r *http.Request, id string, paths func(engine.RunView) []string) error {
	if len(granted(r).Paths) == 0 {
		return nil
	}
	run, err := s.engine.RunByID(r.Context(), id)
	if err != nil {
		return runProblem(err, id)
	}
	return mayAt(r, paths(run)...)
}

// A Reason is the optional body of a call of an operator.
type Reason struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// A Cancellation is the optional body of the call that cancels a run.
type Cancellation struct {
	Reason     string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit. The run keeps it."`
	Compensate *bool  `json:"compensate,omitempty" default:"true" doc:"Whether the run undoes what it has done by its compensations, the last first, before it ends. False ends it as it is, even while it undoes."`
}

// readReason reads an optional body.
func (s *server) readReason(w http.ResponseWriter, r *http.Request) (string, error) {
	return s.readSteering(w, r, func(*fields) {})
}

// readSteering reads an optional body with a reason, and what else there may be in it.
func (s *server) readSteering(w http.ResponseWriter, r *http.Request, more func(*fields)) (string, error) {
	v, given, err := s.readOptional(w, r)
	if err != nil || !given {
		return "", err
	}
	f, fault := objectAt("", v)
	if fault != nil {
		return "", faulty([]Fault{*fault})
	}
	reason := f.label("reason", maxReason)
	more(f)
	f.refuseUnknown()
	return reason, faulty(f.faults)
}

func (s *server) getEntity(w http.ResponseWriter, r *http.Request) error {
	flow, err := pathValue(r, "flow")
	if err != nil {
		return err
	}
	key, err := pathValue(r, "key")
	if err != nil {
		return err
	}
	entity, err := s.engine.Entity(r.Context(), flow, key)
	if errors.Is(err, engine.ErrNotFound) {
		var known []string
		for _, f := range s.engine.Bundle().Flows {
			known = append(known, f.ID)
		}
		return refuse(codeFlowNotFound, "there is no flow %q%s", flow, meant(flow, known))
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, entity)
}

// runProblem says that there is no such run; other errors pass as they are.
func runProblem(err error, id string) error {
	if errors.Is(err, engine.ErrNotFound) {
		return refuse(codeRunNotFound, "there is no run %q", id)
	}
	return err
}

// pathValue gives a parameter of the path. Routes are matched against the path
// as it was sent, so that a key may hold an escaped slash.
func pathValue(r *http.Request, name string) (string, error) {
	v := chi.URLParam(r, name)
	if r.URL.RawPath != "" {
		decoded, err := url.PathUnescape(v)
		if err != nil {
			return "", badParameter([]Fault{{Location: "path/" + name, Message: "want percent signs to encode bytes"}})
		}
		v = decoded
	}
	f := fields{prefix: "path/", values: map[string]any{name: v}}
	v = f.label(name, maxName)
	return v, badParameter(f.faults)
}

// joined lists values for people.
func joined[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}

// etag is the revision of a setting as an entity tag.
func etag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }
