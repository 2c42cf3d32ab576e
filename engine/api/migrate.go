package api

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"procaas/engine"
)

// This file lets operators move runs to the present definition.

func (s *server) migrateOperations() []operation {
	body := jsonBody(s.schema(Migration{}), Migration{Reason: "the fix of get-order"})
	body.Required = false
	return []operation{
		{
			method: http.MethodPost, path: "/v1/runs/{id}/migrate", id: "migrate-run", tag: "runs",
			summary: "Let a run go on by the present definition",
			about: "A run keeps the definition that it began with, until it is moved. It must have begun, not have ended (a failed one may be moved), " +
				"and fit: its checkpoint must be one that the present definition could have written, and hold all that handlers to come read. " +
				"A node that works on the run moves it when the calls under way have ended; until then `migrates_to` says so. " +
				"With `preview` nothing is done, and the reply tells whether the run fits.",
			params: []*huma.Param{inPath("id", "The run's id.")}, body: body,
			replies:  []reply{{status: 200, about: "The run, or with `preview` whether it fits.", body: engine.RunView{}, or: engine.RunFit{}}},
			refusals: []string{codeRunNotFound, codeInvalidParameter, codeRunNotMovable, codeRunPinned, codeStoreUnavailable}, serve: s.migrateRun,
		},
		{
			method: http.MethodPost, path: "/v1/runs/migrate", id: "migrate-runs", tag: "runs",
			summary: "Let the runs that a filter chooses go on by the present definition",
			about: "Takes the runs in flight, and the failed ones, of other definitions than the present one, in the order of acceptance, `limit` in one call; " +
				"`cursor` goes on where the call before ended. Those that do not fit stay, and are told. At least one condition must be given.",
			body:     jsonBody(s.schema(Redrive{}), Redrive{Pipeline: "new-order-created", Preview: true}),
			replies:  []reply{{status: 200, about: "What was done, or with `preview` what would be.", body: engine.RunsMoved{}}},
			refusals: []string{codeStoreUnavailable}, serve: s.migrateRuns,
		},
	}
}

// A Migration is the optional body of a call that moves a run.
type Migration struct {
	Preview bool   `json:"preview,omitempty" doc:"Change nothing, tell whether the run fits."`
	Reason  string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

func (s *server) migrateRun(w http.ResponseWriter, r *http.Request) error {
	id, err := pathValue(r, "id")
	if err != nil {
		return err
	}
	m, err := s.readMigration(w, r)
	if err != nil {
		return err
	}
	if err := s.maySteer(r, id, func(v engine.RunView) []string { return []string{v.Pipeline} }); err != nil {
		return err
	}
	if m.Preview {
		fit, err := s.engine.Fit(r.Context(), id)
		if err != nil {
			return moveProblem(err, id)
		}
		return writeJSON(w, http.StatusOK, fit)
	}
	run, err := s.engine.Move(r.Context(), id, actor(r, m.Reason))
	if err != nil {
		return moveProblem(err, id)
	}
	return writeJSON(w, http.StatusOK, run)
}

// readMigration reads a [Migration]; without a body it is the zero one.
func (s *server) readMigration(w http.ResponseWriter, r *http.Request) (m Migration, err error) {
	v, given, err := s.readOptional(w, r)
	if err != nil || !given {
		return m, err
	}
	f, fault := objectAt("", v)
	if fault != nil {
		return m, faulty([]Fault{*fault})
	}
	m.Preview, m.Reason = f.boolean("preview"), f.label("reason", maxReason)
	f.refuseUnknown()
	return m, faulty(f.faults)
}

// moveProblem says over HTTP why a run is not moved.
func moveProblem(err error, id string) error {
	var pinned *engine.PinnedError
	switch {
	case errors.As(err, &pinned):
		return refuse(codeRunPinned, "run %s does not fit the present definition: %s", id, pinned.Err)
	case errors.Is(err, engine.ErrConflict):
		return refuse(codeRunNotMovable, "run %s has not begun, or has ended: there is nothing to move", id)
	}
	return runProblem(err, id)
}

func (s *server) migrateRuns(w http.ResponseWriter, r *http.Request) error {
	c, err := s.readRedrive(w, r, moveRuns)
	if err != nil {
		return err
	}
	moved, err := s.engine.MoveAll(r.Context(), c.filter, c.preview, actor(r, c.reason))
	if err != nil {
		return redriveProblem(err)
	}
	moved.Next = sealNext(moved.Next)
	return writeJSON(w, http.StatusOK, moved)
}

// migratePath is where runs are moved: one, or all that a filter chooses when id
// is empty.
func migratePath(id string) string {
	if id == "" {
		return "/v1/runs/migrate"
	}
	return "/v1/runs/" + url.PathEscape(id) + "/migrate"
}
