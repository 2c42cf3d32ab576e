package records

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/engine/store"
)

// This file tells services how runs end. The event is stored in the transaction that ends the run. The run that it starts
// sends it, so retries, switches, limits, metrics and lists are those of any run.

// blocked is an end of a run for those that hear of it: later events of its key wait for an operator.
const blocked = "blocked"

// An End is an end of a run that services may hear of.
type End struct {
	Run, Pipeline, Flow, Key string
	Event                    model.Event // of the run, whose payload is not needed
	Generation               int
	Accepted                 time.Time

	Status model.Status
	Blocks bool // later events of the key wait for an operator
	Reason string

	Path, Error, ErrorClass string // of the error, if there is one
}

// Told returns the events that tell of an end, with the definition that names who hears of it, and the one with which the
// deliveries begin. unheard are notifications that only the first one has.
func Told(end End, def, routes *definitions.Definition, now time.Time) (all []model.Intake, unheard []*tree.Notification) {
	plan := def.ByID[end.Pipeline]
	if plan == nil || !end.Blocks && (end.Status == model.Parked || !end.Status.Ended()) {
		return nil, nil
	}
	for _, n := range plan.Notifications() {
		as := string(end.Status)
		if end.Blocks && !slices.Contains(n.On, as) {
			as = blocked
		}
		if !slices.Contains(n.On, as) {
			continue
		}
		id := n.Sender().ID
		to := routes.ByID[id]
		if to == nil || to.Pipeline.Sends == nil {
			unheard = append(unheard, n)
			continue
		}
		ev := end.event(id, as, model.Stamp(now))
		all = append(all, model.Intake{
			ID: routes.RunID(ev), Event: ev, Flow: to.Pipeline.FlowID(), Pipeline: id, Key: ev.ID, Dedup: true,
		})
	}
	return all, unheard
}

// event returns the event for a pipeline that tells of the end. Its payload is the CloudEvent that the service gets. Its id is
// that of the end, so a commit that is repeated stores it once.
func (end *End) event(pipeline, as string, now time.Time) model.Event {
	of := end.Event
	ev := model.Event{
		ID: fmt.Sprintf("%s-%d-%s", end.Run, end.Generation, as), Source: model.NotifySource(pipeline), Type: pipeline,
		Time: now, Inner: true, TraceParent: of.TraceParent, TraceState: of.TraceState,
	}
	ev.Identity = model.IdentityOf(ev)
	data := map[string]any{
		"run": end.Run, "pipeline": end.Pipeline, "flow": end.Flow, "key": end.Key, "status": string(end.Status), "blocks": end.Blocks,
		"generation": end.Generation, "accepted": model.TimeData(end.Accepted), "ended": model.TimeData(now),
		"event":  map[string]any{"id": orNull(of.ID), "source": orNull(of.Source), "type": orNull(of.Type)},
		"reason": orNull(end.Reason), "error": nil,
	}
	if end.Error != "" {
		data["error"] = map[string]any{"handler": orNull(end.Path), "class": orNull(end.ErrorClass), "message": end.Error}
	}
	told := outbound.CloudEvent{ID: ev.ID, Source: "/" + end.Pipeline, Type: "procaas.run." + as, Subject: end.Key, Time: now, Data: data}
	ev.Payload = told.Members()
	return ev
}

// orNull returns null for an empty text.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// end lets the store end a run for an operator, now or by its node. do is Cancel or Undo of the store.
func (o *Runs) end(ctx context.Context, id string, by store.Actor,
	do func(ctx context.Context, id string, by store.Actor, tell store.Tell) error,
) error {
	for try := 1; ; try++ {
		r, err := o.Store.Runs.Run(ctx, id)
		if err != nil {
			return err
		}
		tell, err := o.tell(ctx, &r, by.Reason)
		if err != nil {
			return err
		}
		if err = do(ctx, id, by, tell); !errors.Is(err, store.ErrStale) || try == moveTries {
			return err
		}
	}
}

// tell returns the events that tell of a run that the store ends as cancelled.
func (o *Runs) tell(ctx context.Context, r *store.RunRecord, reason string) (store.Tell, error) {
	def, err := o.DefinitionOf(ctx, r.Bundle)
	if err != nil {
		return store.Tell{}, err
	}
	routes := o.Library.Present()
	if def == o.Library.Tried() {
		routes = def
	}
	events, _ := Told(End{
		Run: r.ID, Pipeline: r.Pipeline, Flow: r.Flow, Key: r.Key, Event: r.Event, Generation: r.Generation, Accepted: r.Accepted,
		Status: model.Cancelled, Reason: reason, Path: r.FailedPath, Error: r.Error, ErrorClass: r.ErrorClass,
	}, def, routes, o.Now())
	for i := range events {
		events[i].Dedup = false // a run ends once: its row is locked
	}
	return store.Tell{Generation: r.Generation, Events: events}, nil
}

// DefinitionOf returns the definition that a run began with. For a run that has not begun, or whose definition this program cannot
// use, it is the present one.
func (o *Runs) DefinitionOf(ctx context.Context, bundle string) (*definitions.Definition, error) {
	if bundle == "" {
		return o.Library.Present(), nil
	}
	def, err := o.Library.Get(ctx, bundle)
	if errors.Is(err, definitions.ErrUnusable) {
		return o.Library.Present(), nil
	}
	return def, err
}
