package ui

import (
	"context"
	"html/template"
	"net/http"

	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

type queueData struct {
	Waiting float64            // events of the inbox
	Oldest  float64            // seconds
	Parked  []stats.ParkedRuns // all that stand still; the most first
	Runs    []checkpoint.RunView
	More    []template.HTML // of add-ons
}

// systems are the pages of what stands beside the runs.
type systems struct{ *Console }

// queue shows what waits: events, and what add-ons have.
func (c systems) queue(w http.ResponseWriter, r *http.Request) error {
	d, err := c.queueData(r.Context())
	if err == nil {
		d.More, err = c.parts(r, "queue")
	}
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "queue", "Queue", d)
	return nil
}

func (c systems) queueData(ctx context.Context) (d queueData, err error) {
	n := c.o.Engine.Numbers()
	d = queueData{Waiting: n.Waiting, Oldest: n.Oldest, Parked: c.o.Engine.Backlog().Parked}
	d.Runs, _, err = c.o.Engine.List(ctx, store.RunFilter{Status: model.Waiting, Oldest: true, Limit: 10})
	return d, err
}
