// Package runs serves the calls about runs and keys: reading and explaining them, and operators'
// changes of one run or many.
package runs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/scope"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/explain"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
	"procaas/engine/watch"
)

// A Reader reads runs. If there is no run with an id, the error is [store.ErrNotFound].
type Reader interface {
	RunByID(ctx context.Context, id string) (checkpoint.RunView, error)
	Explain(ctx context.Context, run, path string) (explain.Explanation, error)
	List(ctx context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error)
	Recorded(ctx context.Context, f store.RunFilter) ([]records.Recorded, string, error)
	Entity(ctx context.Context, flow, key string) (checkpoint.EntityView, error)
	Bundle() *tree.Bundle

	// AwaitRun waits for the end of a run and returns it. If ctx ends first, the error is that of
	// ctx.
	AwaitRun(ctx context.Context, id string) (checkpoint.RunView, error)

	// AwaitEnd is AwaitRun for callers that need only the result.
	AwaitEnd(ctx context.Context, id string) (checkpoint.RunView, error)
	FollowRun(ctx context.Context, id string) (*watch.Progress, error)
}

// A Steerer changes runs. The methods for many runs change a page of them and return the cursor of
// the next page. They begin with the oldest run, or with the newest to cancel.
type Steerer interface {
	Retry(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Cancel(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	Abandon(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)

	// Rerun repeats a run as a new one, from a stage on or completely. RerunPlan returns what that
	// would do.
	Rerun(ctx context.Context, id, stage string, by store.Actor) (checkpoint.RunView, error)
	RerunPlan(ctx context.Context, id, stage string) (intake.RerunPlan, error)

	Preview(ctx context.Context, f store.RunFilter) (records.RunsPreview, error)
	RetryAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
	CancelAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
	AbandonAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)

	// MakeUpAll lets runs make up for a handler that they left out.
	MakeUpAll(ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
}

// A Mover moves runs to the current definition.
type Mover interface {
	Fit(ctx context.Context, id string) (records.RunFit, error)
	Move(ctx context.Context, id string, by store.Actor) (checkpoint.RunView, error)
	MoveAll(ctx context.Context, f store.RunFilter, preview bool, by store.Actor) (records.RunsMoved, error)
}

// An Eraser erases keys.
type Eraser interface {
	Erase(ctx context.Context, e records.Erasure, by store.Actor) (records.ErasureReceipt, error)
}

// A Group serves the calls about runs.
type Group struct {
	Runs    Reader
	Steer   Steerer
	Mover   Mover
	Eraser  Eraser
	Streams *rest.Streams

	// Version returns the hash of the version that begins with these digits.
	Version func(ctx context.Context, digits string) (string, error)
}

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	steered := []string{problem.RunNotFound, problem.InvalidParameter, problem.KeyMoving, problem.CellAway, problem.StoreUnavailable}
	and := func(more ...string) []string { return append(more, steered...) }
	return append([]rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/runs", ID: "list-runs", Need: rest.Reads, Tag: "runs", Summary: "List runs, newest first",
			About: "Items have no payloads and no shared states: read them with `GET /v1/runs/{id}`. A page may have fewer items than " +
				"`limit` if the runs are large. `next` is the cursor of the rest.",
			Replies: rest.OK("A page of runs."), Refusals: []string{problem.InvalidParameter, problem.UnknownVersion, problem.StoreUnavailable},
		}, g.list),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/recordings", ID: "list-recordings", Need: rest.Views, Tag: "runs",
			Summary: "List recorded runs, oldest first",
			About: "`serve --record` chooses the runs to record. Only ended runs are listed. Each has what `procaas replay` needs: its " +
				"event, the live settings, the shared state of its key as it began, and how its calls ended. A page may have " +
				"fewer items than `limit`, or none. `next` is the cursor of the rest.",
			Replies: rest.OK("A page of runs."), Refusals: []string{problem.InvalidParameter, problem.UnknownVersion, problem.StoreUnavailable},
		}, g.recorded),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/runs/{id}", ID: "get-run", Need: rest.Reads, Tag: "runs",
			Summary: "Read a run, or wait for its end",
			About: "With `wait`, or `Prefer: wait=10`, the server answers as soon as the run has ended. " +
				"If the run has not ended in time, or the node stops, it answers 202 with the run as it is. Ask again.",
			Replies: []rest.Reply{
				{About: "The run. For a caller that waits, it has ended."},
				{
					Status: http.StatusAccepted, About: "Only with `wait`: the run has not ended yet.", Body: checkpoint.RunView{},
					Headers: []string{"Location: the run"},
				},
			},
			Refusals: and(problem.TooManyWait), Waits: rest.ForRun,
		}, g.get),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/runs/{id}/progress", ID: "follow-run", Need: rest.Reads, Tag: "runs",
			Summary: "Follow a run until its end",
			About: "A stream of server-sent events. `progress` has the run as lists show it: first as it is now, and then after each saved step, " +
				"at most ten times a second. `end` is the last event, and has the run as `GET /v1/runs/{id}` does. " +
				"A new connection begins with the present state. With the `Last-Event-ID` of the end, the server answers 204.",
			Replies: []rest.Reply{
				{About: "The stream.", Body: checkpoint.RunView{}, ContentType: rest.MediaStream},
				{Status: http.StatusNoContent, About: "The caller has seen the end of the run."},
			},
			Refusals: and(problem.TooManyWait), Lasts: rest.Always,
		}, g.progress),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/runs/{id}/explain", ID: "explain-run", Need: rest.Reads, Tag: "runs",
			Summary: "Explain why a handler ran in a run, or did not",
			About: "The reply says what decided, with the value of each part of the conditions. It comes from the stored run, names what " +
				"is no longer known, and never guesses.",
			Replies: rest.OK("Why."), Refusals: and(problem.HandlerNotFound, problem.TooLong),
		}, g.explain),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/{id}/retry", ID: "retry-run", Need: rest.Steers, Tag: "runs",
			Summary: "Resume a run that failed or waits for an operator, from that handler",
			Example: wire.Reason{Reason: "wrong city"}, Replies: rest.OK("The run."), Refusals: and(problem.RunNotFailed, problem.RunOfTask),
		}, g.retry),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/{id}/cancel", ID: "cancel-run", Need: rest.Steers, Tag: "runs",
			Summary: "Cancel a run",
			About: "If the pipeline has compensations, the run first waits for its calls in flight. Then it compensates, the latest " +
				"handler first. Meanwhile `cancelling` has the reason. Any other run ends at once, or when its node has aborted its calls.",
			Example: wire.Cancellation{Reason: "wrong city"}, Replies: rest.OK("The run."), Refusals: and(problem.RunFinished, problem.RunUndoing),
		}, g.cancel),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/{id}/rerun", ID: "rerun-run", Need: rest.Steers, Tag: "runs",
			Summary: "Run a run again",
			About: "Starts a new run with the event of a run that has ended: succeeded, failed, cancelled or ignored. The new run has its " +
				"own id and its own idempotency keys, so services do its calls again. It uses the present definition, and waits behind the " +
				"other runs of its key. `rerun_of` and `rerun_as` link the two runs.\n\n" +
				"With `from`, the new run starts at that stage. Outcomes of earlier stages come from the old run, and so does the shared " +
				"state before the stage. Names that the old run has saved to its key are read from the key. The new run does not compensate " +
				"what the old one has done.\n\n" +
				"The server refuses the call if the run blocks its key, or if another rerun of it has not ended. It also refuses it if the " +
				"state before `from` is not known, or does not fit the present definition.",
			Example: wire.Rerun{From: "charge", Reason: "the charge was refunded by mistake"},
			Replies: []rest.Reply{{
				About: "The new run, or with `preview` what would happen.", Body: checkpoint.RunView{}, Or: []any{intake.RerunPlan{}},
			}},
			Refusals: and(problem.RerunRefused, problem.EventRejected, problem.BufferFull, problem.UnknownEventType, problem.MissingKey, problem.InvalidEvent,
				problem.InvalidPayload, problem.Overloaded, problem.TooLong),
		}, g.rerun),
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/flows/{flow}/keys/{key}", ID: "get-key", Need: rest.Reads, Tag: "runs",
			Summary:  "Read a key of a flow",
			About:    "A key without events is in its initial state. Encode a slash in a key as %2F.",
			Replies:  rest.OK("The entity."),
			Refusals: []string{problem.FlowNotFound, problem.InvalidParameter, problem.CellAway, problem.StoreUnavailable},
		}, g.key),
		g.eraseOperation(),
	}, append(g.redriveOperations(), g.migrateOperations()...)...)
}

// A runPath names a run.
type runPath struct {
	ID string `path:"id" doc:"The run's id."`
}

type explainQuery struct {
	runPath
	Path string `query:"path" required:"true" want:"want the path of a handler, such as new-order/notify/driver" doc:"The handler: pipeline/stage/handler, or the end of it. caller>handler chooses one call, and p/s[2]>p/s/h one element of a repeated stage, from 0."`
}

func (g *Group) explain(c *rest.Call, in *explainQuery) (explain.Explanation, error) {
	if err := g.mayRead(c, in.ID); err != nil {
		return explain.Explanation{}, err
	}
	why, err := g.Runs.Explain(c.Context(), in.ID, in.Path)
	if errors.Is(err, explain.ErrNoHandler) {
		return why, problem.New(problem.HandlerNotFound, "%s", err)
	}
	return why, runProblem(err, in.ID)
}

// A listQuery says which runs to list. Its statuses are those of [model.Status].
type listQuery struct {
	wire.RunChoice
	Status   string `query:"status" enum:"waiting,running,parked,succeeded,failed,cancelled,ignored" doc:"Only runs with this status."`
	LeftOut  string `query:"left_out" doc:"Only succeeded runs that left out this handler, or one below this pipeline or pipeline/stage, for another reason than its conditions."`
	LeftBy   string `query:"left_by" enum:"switch,fallback,limit,wait,failed" doc:"Only runs that left out the handler of left_out for this reason: an operator had switched it off, fallback had turned it off, it was over its limit, it had waited too long for its service, or it had failed."`
	InFlight bool   `query:"in_flight" doc:"true: only runs that have begun and not ended."`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most runs of one page."`
	rest.PageQuery
}

func (g *Group) list(c *rest.Call, in *listQuery) (page wire.Page[checkpoint.RunView], err error) {
	if err := model.CheckLabelFilter(in.Label); err != nil {
		return page, problem.Parameter([]problem.Fault{{Location: "query/label", Message: err.Error()}})
	}
	if in.LeftBy != "" && strings.Count(in.LeftOut, "/") != 2 {
		return page, problem.Parameter([]problem.Fault{{
			Location: "query/left_by",
			Message:  "want it with left_out and the whole path of a handler",
		}})
	}
	filter, err := g.filterOf(c, &in.RunChoice)
	if err != nil {
		return page, err
	}
	filter.Status = model.Status(in.Status)
	filter.LeftOut = in.LeftOut
	filter.LeftBy = in.LeftBy
	filter.Limit = in.Limit
	filter.Live, filter.Begun = in.InFlight, in.InFlight
	if filter.Cursor, err = in.Position(rest.CursorRuns); err != nil {
		return page, err
	}
	if in.Pipeline != "" {
		if err := c.MayRead(in.Pipeline); err != nil {
			return page, err
		}
	}
	runs, next, err := scope.List(c.Context(), rest.Granted(c.R), g.Runs.List, filter)
	if errors.Is(err, store.ErrCursor) {
		err = rest.NoCursor(rest.CursorRuns)
	}
	return wire.PageOf(runs, rest.SealCursor(rest.CursorRuns, next)), err
}

// A recordedQuery says which recorded runs to list.
type recordedQuery struct {
	Pipeline string    `query:"pipeline" doc:"Only runs of this pipeline."`
	Version  string    `query:"version" doc:"Only runs on this version of the pipelines: at least its first 4 digits."`
	Since    time.Time `query:"since" doc:"Only runs accepted at this time or later."`
	Until    time.Time `query:"until" doc:"Only runs accepted before this time."`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"The most runs to look at for one page."`
	rest.PageQuery
}

func (g *Group) recorded(c *rest.Call, in *recordedQuery) (page wire.Page[records.Recorded], err error) {
	if err := c.MayRead(in.Pipeline); err != nil {
		return page, err
	}
	of := wire.RunChoice{Pipeline: in.Pipeline, Version: in.Version, Since: in.Since, Until: in.Until}
	filter, err := g.filterOf(c, &of)
	if err != nil {
		return page, err
	}
	filter.Limit = in.Limit
	if filter.Cursor, err = in.Position(rest.CursorWalk); err != nil {
		return page, err
	}
	runs, next, err := g.Runs.Recorded(c.Context(), filter)
	if errors.Is(err, store.ErrCursor) {
		err = rest.NoCursor(rest.CursorWalk)
	}
	return wire.PageOf(runs, rest.SealCursor(rest.CursorWalk, next)), err
}

// filterOf converts a choice to a filter.
func (g *Group) filterOf(c *rest.Call, of *wire.RunChoice) (f store.RunFilter, err error) {
	f = store.RunFilter{
		Pipeline: of.Pipeline, Flow: of.Flow, Key: of.Key, Labels: of.Label, FailedPath: of.Handler, NotUndone: of.NotUndone, ErrorClass: of.ErrorClass, Error: of.Error,
		Since: of.Since, Until: of.Until, FailedSince: of.FailedSince,
	}
	if of.Version != "" {
		f.Bundle, err = g.Version(c.Context(), of.Version)
	}
	return f, err
}

type retryRun struct {
	runPath
	Body wire.Reason `required:"false"`
}

func (g *Group) retry(c *rest.Call, in *retryRun) (checkpoint.RunView, error) {
	err := g.maySteer(c, in.ID, func(v *checkpoint.RunView) []string { return []string{v.Pipeline, v.FailedPath} })
	if err != nil {
		return checkpoint.RunView{}, err
	}
	run, err := g.Steer.Retry(c.Context(), in.ID, c.Actor(in.Body.Reason))
	return run, g.refused(c.Context(), err, in.ID, problem.RunNotFailed, "retry takes a run that failed, or one that waits for your decision; "+
		"rerun repeats a run that has ended, make-up calls what a succeeded run left out")
}

type cancelRun struct {
	runPath
	Body wire.Cancellation `required:"false"`
}

func (g *Group) cancel(c *rest.Call, in *cancelRun) (run checkpoint.RunView, err error) {
	if err := g.maySteer(c, in.ID, pipelineOf); err != nil {
		return run, err
	}
	end := g.Steer.Cancel
	if declined(in.Body.Compensate) {
		end = g.Steer.Abandon
	}
	run, err = end(c.Context(), in.ID, c.Actor(in.Body.Reason))
	if errors.Is(err, store.ErrUndoing) {
		return run, problem.New(problem.RunUndoing,
			"run %s is cancelled already, and undoes what it has done; \"compensate\": false (--no-compensate) ends it as it is", in.ID)
	}
	return run, g.refused(c.Context(), err, in.ID, problem.RunFinished, "there is nothing to cancel")
}

// refused is runProblem for a call that the run's current status does not allow. It names the
// status.
func (g *Group) refused(ctx context.Context, err error, id, code, why string) error {
	if ofTask, ok := errors.AsType[*records.TaskRunError](err); ok {
		return problem.New(problem.RunOfTask, "run %s cannot be retried: %s", id, ofTask)
	}
	if !errors.Is(err, store.ErrConflict) {
		return runProblem(err, id)
	}
	run, err := g.Runs.RunByID(ctx, id)
	if err != nil {
		return runProblem(err, id)
	}
	now := string(run.Status)
	if run.Finished != nil {
		now += " since " + run.Finished.UTC().Format(time.RFC3339)
	}
	return problem.New(code, "run %s has the status %s: %s", id, now, why)
}

type rerunRun struct {
	runPath
	Body wire.Rerun `required:"false"`
}

func (g *Group) rerun(c *rest.Call, in *rerunRun) (reply any, err error) {
	if err := g.maySteer(c, in.ID, pipelineOf); err != nil {
		return nil, err
	}
	if in.Body.Preview {
		reply, err = g.Steer.RerunPlan(c.Context(), in.ID, in.Body.From)
	} else {
		reply, err = g.Steer.Rerun(c.Context(), in.ID, in.Body.From, c.Actor(in.Body.Reason))
	}
	if refused, ok := errors.AsType[*intake.RerunError](err); ok {
		err = problem.New(problem.RerunRefused, "%s", refused)
	}
	return reply, runProblem(err, in.ID)
}

// declined reports whether something that is true by default was set to false.
func declined(said *bool) bool { return said != nil && !*said }

func pipelineOf(v *checkpoint.RunView) []string { return []string{v.Pipeline} }

// maySteer refuses a caller whose grant covers none of the paths of a run.
func (g *Group) maySteer(c *rest.Call, id string, paths func(*checkpoint.RunView) []string) error {
	if !c.Bound() {
		return nil
	}
	run, err := g.Runs.RunByID(c.Context(), id)
	if err != nil {
		return runProblem(err, id)
	}
	return c.MayAt(paths(&run)...)
}

// mayRead refuses a caller whose grant may not read the pipeline of a run.
func (g *Group) mayRead(c *rest.Call, id string) error {
	if !c.Bound() {
		return nil
	}
	run, err := g.Runs.RunByID(c.Context(), id)
	if err != nil {
		return runProblem(err, id)
	}
	return c.MayRead(run.Pipeline)
}

type keyPath struct {
	Flow string `path:"flow" doc:"The flow's id."`
	Key  string `path:"key" maxLength:"1024" doc:"The entity."`
}

func (g *Group) key(c *rest.Call, in *keyPath) (checkpoint.EntityView, error) {
	entity, err := g.Runs.Entity(c.Context(), in.Flow, in.Key)
	if errors.Is(err, store.ErrNotFound) {
		err = g.noFlow(in.Flow)
	}
	if err != nil || !c.Bound() {
		return entity, err
	}
	entity, ok := scope.Entity(rest.Granted(c.R), g.Runs.Bundle(), entity)
	if !ok {
		return entity, c.MayRead("a pipeline of the flow " + in.Flow)
	}
	return entity, nil
}

// noFlow is the problem of a flow that does not exist.
func (g *Group) noFlow(flow string) error {
	var known []string
	for _, f := range g.Runs.Bundle().Flows {
		known = append(known, f.ID)
	}
	return problem.New(problem.FlowNotFound, "there is no flow %q%s", flow, problem.Meant(flow, known))
}

// runProblem converts the error for a missing run, and passes others on.
func runProblem(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.RunNotFound, "there is no run %q", id)
	}
	return err
}
