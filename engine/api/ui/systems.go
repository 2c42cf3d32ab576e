package ui

import (
	"context"
	"html/template"
	"net/http"
	"time"

	"procaas/engine/api/ui/words"
	"procaas/engine/checkpoint"
	"procaas/engine/inbox"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Inbox is what the console needs of an inbox over several databases.
type Inbox interface {
	Inbox(ctx context.Context) (inbox.View, error)
}

type queueData struct {
	Waiting float64            // events of the inbox
	Oldest  float64            // seconds
	Parked  []stats.ParkedRuns // all that stand still; the most first
	Runs    []checkpoint.RunView
	Cells   bool            // the inbox is over several databases
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
	n := c.o.Numbers()
	d = queueData{Waiting: n.Waiting, Oldest: n.Oldest, Cells: c.o.Inbox != nil, Parked: c.o.Engine.Backlog().Parked}
	d.Runs, _, err = c.o.Engine.List(ctx, store.RunFilter{Status: model.Waiting, Oldest: true, Limit: 10})
	return d, err
}

type cellsData struct {
	Divided bool // the inbox is over several databases
	Slots   int
	Cells   []cellRow
	Under   []slotMoveRow // moves under way
	Past    []slotMoveRow // those that have ended, the last first
}

type cellRow struct {
	inbox.Cell
	Share float64 // of all slots
	More  bool    // Outbox was not counted to its end
}

type slotMoveRow struct {
	inbox.Move
	Frozen string // for how long its slots took nothing in; empty when they always did
	Lasted string
}

// cells shows the databases of the inbox, and the slots that move between them.
func (c systems) cells(w http.ResponseWriter, r *http.Request) error {
	d, err := c.cellsData(r.Context())
	if err != nil {
		return err
	}
	c.show(w, r, http.StatusOK, "cells", "Inbox", d)
	return nil
}

// countedOutbox is how many events of an outbox are counted.
const countedOutbox = 1000

func (c systems) cellsData(ctx context.Context) (d cellsData, err error) {
	if c.o.Inbox == nil {
		return d, nil
	}
	v, err := c.o.Inbox.Inbox(ctx)
	if err != nil {
		return d, err
	}
	d.Divided, d.Slots = true, v.Slots
	for _, cell := range v.Cells {
		d.Cells = append(d.Cells, cellRow{cell, float64(cell.Slots) / float64(max(v.Slots, 1)), cell.Outbox >= countedOutbox})
	}
	for _, m := range v.Moves {
		row := slotMoveRow{Move: m, Lasted: words.Took(&m.Begun, m.Ended)}
		if m.FrozenS > 0 {
			row.Frozen = words.Span(time.Duration(m.FrozenS * float64(time.Second)))
		}
		if m.Ended == nil {
			d.Under = append(d.Under, row)
		} else {
			d.Past = append(d.Past, row)
		}
	}
	return d, nil
}
