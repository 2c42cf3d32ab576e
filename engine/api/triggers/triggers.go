// Package triggers serves the calls about triggers: listing them, and firing them now or for times in the past. Operators
// pause a trigger by a control of its path, as package controls serves it.
package triggers

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"procaas/engine/api/controls"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/model"
	"procaas/engine/steering"
	"procaas/engine/store"
	"procaas/engine/triggers"
)

// Triggers lists and fires triggers.
type Triggers interface {
	Triggers(ctx context.Context, next int, reads func(pipelines []string) bool) ([]triggers.TriggerView, error)
	RunTrigger(ctx context.Context, id, firing string, by store.Actor) (steering.FiredNow, error)
	BackfillTrigger(ctx context.Context, id string, how steering.Backfill, by store.Actor) (steering.Backfilled, error)

	// SteeredBy lists the pipelines that the events of the trigger at a path run.
	SteeredBy(path string) []string

	// Now is the time by the store's clock.
	Now() time.Time
}

// A Group serves the calls.
type Group struct{ Triggers Triggers }

// exampleTime is a time of the examples.
var exampleTime = time.Date(2026, 11, 21, 3, 30, 0, 0, time.UTC)

// Operations lists the calls.
func (g *Group) Operations() []rest.Operation {
	refusals := []string{
		problem.TriggerNotFound, problem.UnknownEventType, problem.MissingKey, problem.InvalidEvent, problem.InvalidPayload,
		problem.EventRejected, problem.BufferFull, problem.Overloaded, problem.TooLong, problem.StoreUnavailable,
	}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/v1/triggers", ID: "list-triggers", Need: rest.Views, Tag: "triggers",
			Summary: "List triggers with their state, their last firing and their next due times",
			About: "Lists the triggers of the present definition. A trigger fires once for all nodes. `PUT /admin/v1/controls/triggers/{id}` " +
				"with the mode hold pauses one, and `DELETE` resumes it. It does not make up for due times in a pause.",
			Replies: []rest.Reply{{About: "The triggers.", Example: wire.PageOf([]triggers.TriggerView{{
				ID: "close-ledger", Event: "close-ledger", Key: "main", Pipelines: []string{"close-ledger"}, Cron: "30 4 * * *", TimeZone: "Europe/Paris",
				CatchUp: "once", Overlap: triggers.OverlapSkip, State: triggers.StateActive,
				Last: &triggers.FiredEvent{
					Event: "2026-11-21T03:30:00.000000000Z", Time: exampleTime, Run: "06bh3tq2m5vgc2k8s7d1e9f0g4", Status: model.Succeeded,
				},
				Next: []time.Time{exampleTime.AddDate(0, 0, 1)},
			}}, "")}},
			Refusals: []string{problem.InvalidParameter, problem.StoreUnavailable},
		}, g.list),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/triggers/{trigger}/run", ID: "run-trigger", Need: rest.Steers, Tag: "triggers",
			Summary: "Fire a trigger now",
			About: "Submits the event of the trigger, also of a paused one. The overlap policy does not hold for it. The event has the label " +
				"fired-by=run-now. A call with the `id` of an earlier one fires nothing, so repeat a call whose outcome is unknown with its `id`.",
			Example: wire.TriggerRun{ID: "ledger-2026-11-21", Reason: "the ledger was closed"},
			Replies: []rest.Reply{{About: "The event and its run.", Status: http.StatusAccepted}}, Refusals: refusals,
		}, g.run),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/v1/triggers/{trigger}/backfill", ID: "backfill-trigger", Need: rest.Steers, Tag: "triggers",
			Summary: "Fire a trigger for due times in the past",
			About: "Fires each due time of the window that has no event yet, oldest first. The event has the time as `time` and as id, and the label " +
				"fired-by=backfill. A due time that has fired is a duplicate, so a window may be repeated. The runs wait for those of " +
				"other events, by a priority of -1, and the overlap policy does not hold for them.\n\n" +
				"A call handles up to 100 due times. Send `next` as `from` for the rest. While the last run of the call before waits to " +
				"begin, `waits_for` names it, and the call fires nothing. A window has at most 10,000 due times. The server refuses due " +
				"times that are so old that the run may be deleted, because what has run would run again.",
			Example:  wire.TriggerBackfill{From: exampleTime.AddDate(0, 0, -7), To: exampleTime, Reason: "the trigger was paused"},
			Replies:  rest.OK("What became of the due times."),
			Refusals: append([]string{problem.InvalidBackfill}, refusals...),
		}, g.backfill),
	}
}

type listTriggers struct {
	Next int `query:"next" minimum:"0" maximum:"100" default:"10" doc:"How many of the next due times to list for each trigger."`
}

func (g *Group) list(c *rest.Call, in *listTriggers) (wire.Page[triggers.TriggerView], error) {
	grant := rest.Granted(c.R)
	return rest.Listed(g.Triggers.Triggers(c.Context(), in.Next, func(pipelines []string) bool {
		return !grant.Bound() || slices.ContainsFunc(pipelines, grant.Reads)
	}))
}

// A triggerPath names a trigger.
type triggerPath struct {
	Trigger string `path:"trigger" doc:"The id of the trigger." example:"close-ledger"`
}

// maySteer refuses callers whose grant covers no pipeline of the trigger.
func (g *Group) maySteer(c *rest.Call, id string) error {
	path := triggers.Path(id)
	return c.MayAt(append(g.Triggers.SteeredBy(path), path)...)
}

type runTrigger struct {
	triggerPath
	Body wire.TriggerRun `required:"false"`
}

func (g *Group) run(c *rest.Call, in *runTrigger) (steering.FiredNow, error) {
	if err := g.maySteer(c, in.Trigger); err != nil {
		return steering.FiredNow{}, err
	}
	fired, err := g.Triggers.RunTrigger(c.Context(), in.Trigger, in.Body.ID, c.Actor(in.Body.Reason))
	return fired, Problem(err)
}

type backfillTrigger struct {
	triggerPath
	Body wire.TriggerBackfill
}

func (g *Group) backfill(c *rest.Call, in *backfillTrigger) (steering.Backfilled, error) {
	if err := g.maySteer(c, in.Trigger); err != nil {
		return steering.Backfilled{}, err
	}
	b := &in.Body
	how := steering.Backfill{From: b.From, To: b.To, DryRun: b.DryRun, Forgot: b.Forgotten}
	if how.To.IsZero() {
		how.To = g.Triggers.Now()
	}
	done, err := g.Triggers.BackfillTrigger(c.Context(), in.Trigger, how, c.Actor(b.Reason))
	return done, Problem(err)
}

// Problem converts the error of a refused firing to a problem.
func Problem(err error) error {
	var window *steering.BackfillError
	if errors.As(err, &window) {
		return problem.New(problem.InvalidBackfill, "%s", window.Message)
	}
	return controls.Problem(err, "")
}
