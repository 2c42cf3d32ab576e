package node

import (
	"context"

	"procaas/engine/clock"
	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/records"
)

// notifications returns the events that tell of the end of the run, which the change saves.
func (j *job) notifications(c model.Change) []model.Intake {
	if !c.Status.Ended() && c.Status != model.Parked || j.run != nil && j.run.MakesUp() {
		return nil
	}
	claimed, def := j.claimed, j.known()
	if plan := def.ByID[c.Pipeline]; plan == nil || len(plan.Notifications()) == 0 {
		return nil
	}
	blocks := j.blocks(c)
	end := records.End{
		Run: claimed.ID, Pipeline: c.Pipeline, Flow: claimed.Flow, Key: claimed.Key, Event: claimed.Event, Generation: claimed.Generation,
		Accepted: claimed.Accepted, Status: c.Status, Blocks: blocks, Reason: c.Reason, Path: c.FailedPath, Error: c.Error, ErrorClass: c.ErrorClass,
	}
	if end.Error == "" && c.Status == model.Parked && j.run != nil {
		end.Path, end.Error = j.run.Stuck()
	}
	all, unheard := records.Told(end, def, j.routes(def), j.n.d.Clock.Now())
	for _, n := range unheard {
		j.at("").Info("nobody hears of the end: the present definition has no such notification", "notification", n.Sender().ID)
	}
	j.queue(all)
	return all
}

// known returns the definition of the run, also of one that ends before it is ready.
func (j *job) known() *definitions.Definition {
	if j.def != nil {
		return j.def
	}
	ctx, cancel := context.WithTimeout(j.n.ctx, clock.StoreTimeout)
	defer cancel()
	def, err := j.n.d.Runs.DefinitionOf(ctx, j.claimed.Bundle)
	if err != nil {
		return j.n.d.Library.Present()
	}
	return def
}

// routes returns the definition with which the deliveries of a run begin.
func (j *job) routes(def *definitions.Definition) *definitions.Definition {
	if def == j.n.d.Library.Tried() {
		return def
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
