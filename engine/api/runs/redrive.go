package runs

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/store"
)

// This file serves operators' changes of the runs of a filter.

// A verb is a change of many runs.
type verb struct {
	name string
	of   []model.Status // statuses of the runs that it may choose

	refusals []string // in addition to those of all verbs

	// whole says that it affects whole pipelines, so a grant for a handler is not enough.
	whole bool
	do    func(s Steerer, ctx context.Context, f store.RunFilter, by store.Actor) (records.RunsDone, error)
}

// live lists the statuses of runs that may continue.
var live = []model.Status{model.Waiting, model.Running, model.Parked, model.Failed}

func (g *Group) redriveOperations() []rest.Operation {
	const about = "Handles runs in the order of acceptance, up to `limit` per call. `cursor` continues after the previous call. A " +
		"call ends early after about 2 s, or if the store fails after the first runs. The reply then has the changed runs, and `next` " +
		"leads to the rest. A walk by cursor visits each run once, and you may repeat it from the start. The call needs at least one condition."
	operation := func(v *verb, summary, about string, example wire.RunChoice) rest.Operation {
		return rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/" + v.name, ID: v.name + "-runs", Need: rest.Steers, Tag: "runs",
			Summary: summary, About: about,
			Example: wire.Redrive{RunChoice: example, Preview: true},
			Replies: []rest.Reply{{
				About: "The changes, or with `preview` what would change.", Body: records.RunsDone{},
				Or: []any{records.RunsPreview{}},
			}},
			Refusals: append(v.refusals, problem.UnknownVersion, problem.StoreUnavailable),
		}, func(c *rest.Call, in *redrive) (any, error) { return g.redrive(c, v, &in.Body) })
	}
	below := wire.RunChoice{Handler: "new-order-created/notify", ErrorClass: "5xx"}
	return []rest.Operation{
		operation(&verb{name: "retry", of: []model.Status{model.Failed, model.Parked}, do: Steerer.RetryAll},
			"Retry the failed runs that a filter chooses", about, below),
		operation(&verb{name: "cancel", of: live, whole: true, do: Steerer.CancelAll}, "Cancel the runs that a filter chooses", about, below),
		operation(&verb{name: makeUp, of: []model.Status{model.Succeeded}, do: Steerer.MakeUpAll, refusals: []string{problem.HandlerOff}},
			"Call a handler that runs left out",
			"Calls `handler` in succeeded runs that left it out: it was switched off, out of the flow or over its limit, its service was "+
				"down for too long, or it failed. Each run makes only this call, with the `Idempotency-Key` that it had or would have had. It "+
				"evaluates the conditions again. The result goes to the run, and not to the key. A handler cannot be made up inside a call or "+
				"a repeated stage, with for-each, or if it awaits an event. Such runs count as `moved_on`. The server refuses the call with "+
				"`handler_off` while the handler is switched off or out of the flow.\n\n"+about,
			wire.RunChoice{Handler: "new-order-created/notify/user", Since: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}),
	}
}

// makeUp is the verb that chooses runs by what they left out.
const makeUp = "make-up"

type redrive struct{ Body wire.Redrive }

// redrive changes a page of runs, or previews that.
func (g *Group) redrive(c *rest.Call, v *verb, r *wire.Redrive) (any, error) {
	filter, err := g.chosen(c, v, r)
	if err != nil {
		return nil, err
	}
	if r.Preview {
		filter.Live = v.name != makeUp
		if v.name == "retry" {
			filter.Status = cmp.Or(filter.Status, model.Failed)
		}
		return g.Steer.Preview(c.Context(), filter)
	}
	do := v.do
	if v.whole && declined(r.Compensate) {
		do = Steerer.AbandonAll
	}
	done, err := do(g.Steer, c.Context(), filter, c.Actor(r.Reason))
	done.Next = sealNext(done.Next)
	return done, redriveProblem(err)
}

// chosen returns the filter of a choice. It refuses callers who may not change the runs.
func (g *Group) chosen(c *rest.Call, v *verb, r *wire.Redrive) (filter store.RunFilter, err error) {
	if filter, err = g.filterOf(c, &r.RunChoice); err != nil {
		return filter, err
	}
	filter.Status = model.Status(r.Status)
	var faults []problem.Fault
	fault := func(at, message string) { faults = append(faults, problem.Fault{Location: at, Message: message}) }
	if filter == (store.RunFilter{}) {
		fault("", "want at least one of pipeline, flow, key, label, version, status, handler, not_undone, error_class, error, since, until: all "+
			"runs are not chosen by "+
			"saying nothing")
	}
	if err := model.CheckLabelFilter(r.Label); err != nil {
		fault("/label", err.Error())
	}
	if r.Status != "" && !slices.Contains(v.of, filter.Status) {
		fault("/status", "want one of "+rest.Joined(v.of)+", have "+rest.Shown(r.Status))
	}
	if v.name == makeUp {
		filter.LeftOut, filter.FailedPath = r.Handler, ""
		if strings.Count(r.Handler, "/") != 2 {
			fault("/handler", "want the path of the handler that was left out, such as new-order/notify/user, have "+rest.Shown(r.Handler))
		}
	}
	filter.LeftBy = r.LeftBy
	if v.name != makeUp && r.LeftBy != "" {
		fault("/left_by", "want it only for a make-up: no other change chooses runs by what they left out")
	}
	if !v.whole && r.Compensate != nil {
		fault("/compensate", "want it only where runs are cancelled: nothing else undoes what they have done")
	}
	position, ok := rest.OpenCursor(rest.CursorWalk, r.Cursor)
	filter.Limit, filter.Cursor = r.Limit, position
	if !ok {
		fault("/cursor", rest.WrongCursor(rest.CursorWalk))
	}
	if err := problem.Body(faults); err != nil {
		return filter, err
	}
	pipeline, _, _ := strings.Cut(r.Handler, "/")
	paths := []string{r.Pipeline, pipeline}
	if !v.whole { // the rest of the pipeline is not affected
		paths = append(paths, r.Handler)
	}
	return filter, c.MayAt(paths...)
}

// sealNext is [rest.SealCursor] for the next page. Nil stays nil.
func sealNext(next *string) *string {
	if next == nil {
		return nil
	}
	sealed := rest.SealCursor(rest.CursorWalk, *next)
	return &sealed
}

// redriveProblem converts the errors of an invalid cursor and of a handler that is off, and passes
// others on.
func redriveProblem(err error) error {
	if errors.Is(err, store.ErrCursor) {
		return problem.Body([]problem.Fault{{Location: "/cursor", Message: rest.WrongCursor(rest.CursorWalk)}})
	}
	if off, ok := errors.AsType[*records.OffError](err); ok {
		return problem.New(problem.HandlerOff, "%s", off)
	}
	return err
}

// The rest of the file moves runs to the current definition.

func (g *Group) migrateOperations() []rest.Operation {
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/{id}/migrate", ID: "migrate-run", Need: rest.Steers, Tag: "runs",
			Summary: "Move a run to the present definition",
			About: "A run keeps its definition until somebody moves it. You can move a run that has begun and has not ended, or that " +
				"failed. It must fit: the present definition could have written its checkpoint, and the checkpoint has everything that later " +
				"handlers read. A node that works on the run moves it after the calls in flight. Until then `migrates_to` is set. With " +
				"`preview` the call changes nothing, and reports whether the run fits.",
			Example:  wire.Migration{Reason: "the fix of get-order"},
			Replies:  []rest.Reply{{About: "The run, or with `preview` whether it fits.", Body: checkpoint.RunView{}, Or: []any{records.RunFit{}}}},
			Refusals: []string{problem.RunNotFound, problem.InvalidParameter, problem.RunNotMovable, problem.RunPinned, problem.StoreUnavailable},
		}, g.migrate),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/runs/migrate", ID: "migrate-runs", Need: rest.Steers, Tag: "runs",
			Summary: "Move the runs that a filter chooses to the present definition",
			About: "Moves runs in flight and failed runs of older definitions to the present one, in the order of acceptance, up to " +
				"`limit` per call. `cursor` continues after the previous call. Runs that do not fit stay, and the reply lists them. A call " +
				"ends early after about 2 s, or if the store fails after the first runs, and `next` leads to the rest. The call " +
				"needs at least one condition.",
			Example:  wire.Redrive{RunChoice: wire.RunChoice{Pipeline: "new-order-created"}, Preview: true},
			Replies:  rest.OK("The changes, or with `preview` what would change."),
			Refusals: []string{problem.UnknownVersion, problem.StoreUnavailable},
		}, g.migrateAll),
	}
}

type migrateRun struct {
	runPath
	Body wire.Migration `required:"false"`
}

func (g *Group) migrate(c *rest.Call, in *migrateRun) (any, error) {
	if err := g.maySteer(c, in.ID, pipelineOf); err != nil {
		return nil, err
	}
	if in.Body.Preview {
		fit, err := g.Mover.Fit(c.Context(), in.ID)
		return fit, g.moveProblem(c.Context(), err, in.ID)
	}
	run, err := g.Mover.Move(c.Context(), in.ID, c.Actor(in.Body.Reason))
	return run, g.moveProblem(c.Context(), err, in.ID)
}

// moveProblem converts the error of moving a run to a problem.
func (g *Group) moveProblem(ctx context.Context, err error, id string) error {
	if pinned, ok := errors.AsType[*records.PinnedError](err); ok {
		return problem.New(problem.RunPinned, "run %s does not fit the present definition: %s", id, pinned.Err)
	}
	return g.refused(ctx, err, id, problem.RunNotMovable,
		"only a run that has begun and not ended, or that failed, can move; rerun repeats a run that has ended, with the present definition")
}

func (g *Group) migrateAll(c *rest.Call, in *redrive) (moved records.RunsMoved, err error) {
	filter, err := g.chosen(c, &verb{name: "migrate", of: live}, &in.Body)
	if err != nil {
		return moved, err
	}
	moved, err = g.Mover.MoveAll(c.Context(), filter, in.Body.Preview, c.Actor(in.Body.Reason))
	moved.Next = sealNext(moved.Next)
	return moved, redriveProblem(err)
}
