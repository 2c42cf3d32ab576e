package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"procaas/dsl/diag"
	"procaas/engine"
)

func (s *server) listNodes(w http.ResponseWriter, r *http.Request) error {
	nodes, err := s.engine.Nodes(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, pageOf(nodes, ""))
}

// listAudit asks for one change more than a page holds: so it knows whether another page follows.
func (s *server) listAudit(w http.ResponseWriter, r *http.Request) error {
	f := queryFields(r.URL.Query())
	filter := engine.AuditFilter{
		Kind: f.label("kind", maxName), Name: f.label("name", maxName), By: f.label("by", maxName),
		Since: f.instant("since"), Until: f.instant("until"),
	}
	if kinds := engine.AuditKinds(); filter.Kind != "" && !slices.Contains(kinds, filter.Kind) {
		f.fault("kind", "unknown kind %q; want one of %s", filter.Kind, strings.Join(kinds, ", "))
	}
	limit, position := f.pageSize(), f.cursor(cursorAudit)
	if position != "" {
		var err error
		if filter.Before, err = strconv.ParseInt(position, 36, 64); err != nil || filter.Before < 1 {
			f.fault("cursor", "%s", wrongCursor(cursorAudit))
		}
	}
	if err := badParameter(f.faults); err != nil {
		return err
	}
	changes, more, err := s.changes(r.Context(), filter, limit)
	if err != nil {
		return err
	}
	next := ""
	if more {
		next = sealCursor(cursorAudit, strconv.FormatInt(changes[len(changes)-1].Revision, 36))
	}
	return writeJSON(w, http.StatusOK, pageOf(changes, next))
}

var chainHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// maxExpected bounds the hashes that one call looks for.
const maxExpected = 16

// verifyAudit reads the whole audit, so one call after the other does.
func (s *server) verifyAudit(w http.ResponseWriter, r *http.Request) error {
	f := queryFields(r.URL.Query())
	var kept []string
	if text := f.str("expect"); text != "" {
		kept = strings.Split(strings.ToLower(text), ",")
	}
	if len(kept) > maxExpected {
		f.fault("expect", "want at most %d hashes, have %d", maxExpected, len(kept))
	}
	for _, hash := range kept {
		if !chainHash.MatchString(hash) {
			f.fault("expect", "want hashes of 64 hexadecimal digits, have %q", hash)
			break
		}
	}
	if err := badParameter(f.faults); err != nil {
		return err
	}
	select {
	case s.verifying <- struct{}{}:
	case <-r.Context().Done():
		return r.Context().Err()
	}
	defer func() { <-s.verifying }()
	report, err := s.engine.VerifyAudit(r.Context(), kept)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, report)
}

const (
	// auditStep is how many changes are read at once: one of a setting may hold a megabyte
	// twice.
	auditStep = 20

	// mostAudited bounds a page of changes, in bytes of JSON. One change is always on it.
	mostAudited = 8 << 20
)

// changes reads a page of at most limit changes, and tells whether there are more.
func (s *server) changes(ctx context.Context, filter engine.AuditFilter, limit int) (page []engine.AuditView, more bool, err error) {
	size := 0
	for {
		filter.Limit = min(limit-len(page), auditStep) + 1
		step, err := s.engine.Audit(ctx, filter)
		if err != nil {
			return nil, false, err
		}
		for i, v := range step[:min(len(step), filter.Limit-1)] {
			data, err := json.Marshal(v)
			if err != nil {
				return nil, false, fmt.Errorf("audit %d: %w", v.Revision, err)
			}
			if size += len(data); size > mostAudited && len(page) > 0 {
				return page, true, nil
			}
			page, filter.Before = append(page, v), step[i].Revision
		}
		if len(step) < filter.Limit || len(page) >= limit {
			return page, len(step) == filter.Limit, nil
		}
	}
}

// A Finding is what is wrong with a pipeline file.
type Finding struct {
	File      string `json:"file" doc:"The file, as the server was given it."`
	Line      int    `json:"line" doc:"Where it begins, from 1."`
	Column    int    `json:"column" doc:"The column of its first character, from 1."`
	EndLine   int    `json:"end_line" doc:"The line in which it ends."`
	EndColumn int    `json:"end_column" doc:"The column behind its last character, which it does not include."`
	Severity  string `json:"severity" enum:"error,warning,advice" doc:"error refuses the pipelines; warning and advice do not."`
	Code      string `json:"code" doc:"The rule, such as PC0103; procaas explain tells about it."`
	Message   string `json:"message" doc:"What is wrong, for people."`
	Hint      string `json:"hint" doc:"How to mend it; may be empty."`
}

// findings writes diagnostics as replies have them.
func findings(found []diag.Diagnostic) []Finding {
	var out []Finding
	for _, d := range found {
		out = append(out, Finding{
			File: d.File, Line: d.Start.Line, Column: d.Start.Column, EndLine: d.End.Line, EndColumn: d.End.Column,
			Severity: string(d.Severity), Code: string(d.Code), Message: d.Message, Hint: d.Hint,
		})
	}
	return out
}

// A Reload says how pipelines are read again.
type Reload struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for the audit."`
	Drop   bool   `json:"drop,omitempty" doc:"Cancel accepted events that wait for pipelines that are gone. Otherwise such pipelines are refused."`
}

func (s *server) reloadPipelines(w http.ResponseWriter, r *http.Request) error {
	drop := false
	reason, err := s.readSteering(w, r, func(f *fields) { drop = f.boolean("drop") })
	if err != nil {
		return err
	}
	if s.reload == nil {
		return refuse(codeNotReloadable, "this server was not started with pipelines that it could read again")
	}
	diff, err := s.reload(r.Context(), drop, actor(r, reason))
	var waits *engine.DropError
	if errors.As(err, &waits) {
		return refuse(codeEventsWait, "%s; the pipelines before stay", waits)
	}
	var refused *engine.DefinitionError
	if errors.As(err, &refused) {
		p := refuse(codeInvalidPipelines, "%s; the pipelines before stay", refused)
		p.Diagnostics = findings(refused.Found)
		return p
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, diff)
}

// A Redrive chooses runs to retry, cancel or move, and says how.
type Redrive struct {
	Pipeline   string `json:"pipeline,omitempty" maxLength:"256" doc:"Only runs of this pipeline."`
	Flow       string `json:"flow,omitempty" maxLength:"256" doc:"Only runs of this flow."`
	Key        string `json:"key,omitempty" maxLength:"256" doc:"Only runs of this key."`
	Status     string `json:"status,omitempty" enum:"waiting,running,parked,failed" doc:"Only runs with this status. Those that are retried are failed, unless it says parked: such that wait for an operator."`
	Handler    string `json:"handler,omitempty" maxLength:"256" doc:"Only runs that failed in this handler, or below this pipeline or pipeline/stage."`
	ErrorClass string `json:"error_class,omitempty" pattern:"^(timeout|connection|schema|other|quarantined|unserved|status|[1-5]xx|[1-5][0-9][0-9])$" doc:"Only runs that failed with an error of this class: timeout, connection, schema, a status such as 503, 4xx, 5xx, status or other; quarantined for runs that nodes have died of."`
	Error      string `json:"error,omitempty" maxLength:"512" doc:"Only runs whose error contains this text."`
	Since      string `json:"since,omitempty" format:"date-time" doc:"Only runs accepted then or later."`
	Until      string `json:"until,omitempty" format:"date-time" doc:"Only runs accepted before."`
	Preview    bool   `json:"preview,omitempty" doc:"Change nothing, tell which runs are chosen."`
	Limit      int    `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"50" doc:"The most runs of one call."`
	Cursor     string `json:"cursor,omitempty" maxLength:"512" doc:"Where to go on: next of the call before."`
	Reason     string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit. Kept with cancelled runs."`
	Compensate *bool  `json:"compensate,omitempty" default:"true" doc:"Only of runs that are cancelled: false ends them as they are, without undoing what they have done."`
}

func (s *server) retryRuns(w http.ResponseWriter, r *http.Request) error {
	return s.redrive(w, r, RetryRuns, func(c choice) (engine.RunsDone, error) {
		return s.engine.RetryAll(r.Context(), c.filter, actor(r, c.reason))
	})
}

// live lists the statuses of runs that may go on.
var live = []engine.Status{engine.Waiting, engine.Running, engine.Parked, engine.Failed}

func (s *server) cancelRuns(w http.ResponseWriter, r *http.Request) error {
	return s.redrive(w, r, CancelRuns, func(c choice) (engine.RunsDone, error) {
		if c.abandon {
			return s.engine.AbandonAll(r.Context(), c.filter, actor(r, c.reason))
		}
		return s.engine.CancelAll(r.Context(), c.filter, actor(r, c.reason))
	})
}

func (s *server) makeUpRuns(w http.ResponseWriter, r *http.Request) error {
	return s.redrive(w, r, MakeUpRuns, func(c choice) (engine.RunsDone, error) {
		return s.engine.MakeUpAll(r.Context(), c.filter, actor(r, c.reason))
	})
}

// A choice is a [Redrive] that has been read.
type choice struct {
	filter  engine.RunFilter
	preview bool
	reason  string
	abandon bool // what cancelled runs have done is not undone
}

// of lists the statuses of the runs that a verb may choose.
func (v Verb) of() []engine.Status {
	switch v {
	case RetryRuns:
		return []engine.Status{engine.Failed, engine.Parked}
	case MakeUpRuns:
		return []engine.Status{engine.Succeeded}
	}
	return live
}

// readRedrive reads which runs are wanted, and what for. It
// refuses callers who may not change them.
func (s *server) readRedrive(w http.ResponseWriter, r *http.Request, verb Verb) (c choice, err error) {
	may := verb.of()
	f, err := s.readObject(w, r)
	if err != nil {
		return c, err
	}
	c.filter = f.runFilter()
	if c.filter == (engine.RunFilter{}) {
		f.faults = append(f.faults, Fault{Message: "want at least one of pipeline, flow, key, status, handler, error_class, error, since, until: all runs are not chosen by saying nothing"})
	}
	if c.filter.Status != "" && !slices.Contains(may, c.filter.Status) {
		f.fault("status", "want one of %s, have %s", joined(may), shown(string(c.filter.Status)))
	}
	c.filter.Limit, c.filter.Cursor = f.pageSize(), f.cursor(cursorWalk)
	c.preview, c.reason = f.boolean("preview"), f.label("reason", maxReason)
	if verb == CancelRuns {
		c.abandon = f.declines("compensate")
	}
	f.refuseUnknown()
	path := c.filter.FailedPath
	if verb == MakeUpRuns {
		if c.filter.LeftOut, c.filter.FailedPath = path, ""; strings.Count(path, "/") != 2 {
			f.fault("handler", "want the path of the handler that was left out, such as new-order/notify/user, have %s", shown(path))
		}
	}
	if err := faulty(f.faults); err != nil {
		return c, err
	}
	pipeline, _, _ := strings.Cut(path, "/")
	paths := []string{c.filter.Pipeline, pipeline}
	if verb != CancelRuns { // the rest of the pipeline is left alone
		paths = append(paths, path)
	}
	return c, mayAt(r, paths...)
}

// redrive reads a [Redrive] and does it, or tells what it would do.
func (s *server) redrive(w http.ResponseWriter, r *http.Request, verb Verb, do func(choice) (engine.RunsDone, error)) error {
	c, err := s.readRedrive(w, r, verb)
	if err != nil {
		return err
	}
	if c.preview {
		if c.filter.Live = verb != MakeUpRuns; verb == RetryRuns {
			c.filter.Status = cmp.Or(c.filter.Status, engine.Failed)
		}
		p, err := s.engine.Preview(r.Context(), c.filter)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, p)
	}
	done, err := do(c)
	if err != nil {
		return redriveProblem(err)
	}
	done.Next = sealNext(done.Next)
	return writeJSON(w, http.StatusOK, done)
}

// sealNext is sealCursor for where a walk goes on; nil stays nil.
func sealNext(next *string) *string {
	if next == nil {
		return nil
	}
	sealed := sealCursor(cursorWalk, *next)
	return &sealed
}

// redriveProblem tells a cursor that cannot be gone on from; other errors pass as they are.
func redriveProblem(err error) error {
	if errors.Is(err, engine.ErrCursor) {
		return faulty([]Fault{{Location: "/cursor", Message: wrongCursor(cursorWalk)}})
	}
	return err
}

// queryFields makes the fields of a query. A parameter without a value is absent: forms send
// those that nobody has filled in.
func queryFields(q url.Values) *fields {
	f := &fields{prefix: "query/", text: true, values: map[string]any{}}
	for name, values := range q {
		if values[0] != "" {
			f.values[name] = values[0]
		}
		if len(values) > 1 {
			f.fault(name, "want the parameter once, have it %d times", len(values))
		}
	}
	return f
}

// pageSize reads limit.
func (f *fields) pageSize() int {
	limit := f.integer("limit")
	switch {
	case f.values["limit"] == nil:
		return defaultLimit
	case limit < 1 || limit > maxLimit:
		f.fault("limit", "want a number from 1 to %d, have %v", maxLimit, f.values["limit"])
	}
	return limit
}

var errorClass = regexp.MustCompile(`^(timeout|connection|schema|other|quarantined|unserved|status|[1-5]xx|[1-5][0-9][0-9])$`)

// runFilter reads which runs are wanted.
func (f *fields) runFilter() engine.RunFilter {
	filter := engine.RunFilter{
		Pipeline:   f.label("pipeline", maxName),
		Flow:       f.label("flow", maxName),
		Key:        f.label("key", maxName),
		Status:     engine.Status(f.label("status", maxName)),
		FailedPath: f.label("handler", maxName),
		ErrorClass: f.label("error_class", maxName),
		Error:      f.label("error", maxReason),
		Since:      f.instant("since"),
		Until:      f.instant("until"),
	}
	if filter.Status != "" && !slices.Contains(statuses, filter.Status) {
		f.fault("status", "unknown status %q; want one of %s", filter.Status, joined(statuses))
	}
	if filter.ErrorClass != "" && !errorClass.MatchString(filter.ErrorClass) {
		f.fault("error_class", "want timeout, connection, schema, a status such as 503, 4xx, 5xx, status, other, quarantined or unserved, have %s", shown(filter.ErrorClass))
	}
	return filter
}
