package node

import (
	"fmt"
	"slices"

	"procaas/dsl/tree"
	"procaas/engine/definitions"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/outbound"
)

// This file tells services how runs end. The event is stored in the transaction that ends the run. The run that it starts
// sends it, so retries, switches, limits, metrics and lists are those of any run.

// blocked is an end of a run for those that hear of it: later events of its key wait for an operator.
const blocked = "blocked"

// notifications returns the events that tell of the end of the run, which the change saves.
func (j *job) notifications(c model.Change) (all []model.Intake) {
	if j.def == nil || j.run != nil && j.run.MakesUp() || !c.Status.Ended() && c.Status != model.Parked {
		return nil
	}
	plan := j.def.ByID[c.Pipeline]
	if plan == nil {
		return nil
	}
	blocks := j.blocks(c)
	for _, n := range plan.Notifications() {
		end := string(c.Status)
		if blocks && !slices.Contains(n.On, end) {
			end = blocked
		}
		if !slices.Contains(n.On, end) {
			continue
		}
		ev := j.notification(n, c, end, blocks)
		in, err := intake.Route(j.routes(), ev)
		if err != nil {
			j.at("").Info("nobody hears of the end: the present definition has no such notification", "notification", n.Sender().ID)
			continue
		}
		in.Dedup, in.From = true, nil
		all = append(all, in)
	}
	j.queue(all)
	return all
}

// routes returns the definition with which the deliveries of a run begin.
func (j *job) routes() *definitions.Definition {
	if j.def == j.n.d.Library.Tried() {
		return j.def
	}
	return j.n.d.Library.Present()
}

// blocks reports whether later events of the key wait until an operator retries or cancels the run.
func (j *job) blocks(c model.Change) bool {
	switch c.PlaceAfter(j.claimed.Ordered, j.claimed.Block, "", j.n.d.Clock.Now()) {
	case model.PlaceBlocked, model.PlaceHeld:
		return j.claimed.Ordered
	}
	return false
}

// notification returns the event about an end of the run. Its payload is the CloudEvent that the service gets. Its id is
// that of the end, so a commit that is repeated stores it once.
func (j *job) notification(n *tree.Notification, c model.Change, end string, blocks bool) model.Event {
	claimed, now := j.claimed, model.Stamp(j.n.d.Clock.Now())
	pipeline := n.Sender().ID
	ev := model.Event{
		ID: fmt.Sprintf("%s-%d-%s", claimed.ID, claimed.Generation, end), Source: model.NotifySource(pipeline), Type: pipeline,
		Time: now, Inner: true, TraceParent: claimed.Event.TraceParent, TraceState: claimed.Event.TraceState,
	}
	ev.Identity = model.IdentityOf(ev)
	data := map[string]any{
		"run": claimed.ID, "pipeline": c.Pipeline, "flow": claimed.Flow, "key": claimed.Key, "status": string(c.Status), "blocks": blocks,
		"generation": claimed.Generation, "accepted": model.TimeData(claimed.Accepted), "ended": model.TimeData(now),
		"event":  map[string]any{"id": claimed.Event.ID, "source": claimed.Event.Source, "type": claimed.Event.Type},
		"reason": orNull(c.Reason), "error": nil,
	}
	path, why := c.FailedPath, c.Error
	if why == "" && c.Status == model.Parked && j.run != nil {
		path, why = j.run.Stuck()
	}
	if why != "" {
		data["error"] = map[string]any{"handler": orNull(path), "class": orNull(c.ErrorClass), "message": why}
	}
	told := outbound.CloudEvent{ID: ev.ID, Source: "/" + c.Pipeline, Type: "procaas.run." + end, Subject: claimed.Key, Time: now, Data: data}
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
