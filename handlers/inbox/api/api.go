// Package api serves operators' calls about the databases of an inbox.
package api

import (
	"errors"
	"net/http"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	"procaas/handlers/inbox/remote"
)

// These are the problems of an inbox of several databases.
var (
	noCells     = problem.Kind{Code: "no_cells", Status: http.StatusConflict, Title: "The inbox has one database"}
	invalidMove = problem.Kind{Code: "invalid_move", Status: http.StatusConflict, Title: "The slots cannot move so"}
	cellInUse   = problem.Kind{Code: "cell_in_use", Status: http.StatusConflict, Title: "The database cannot leave the inbox"}
)

// Problems lists them.
func Problems() []problem.Kind { return []problem.Kind{noCells, invalidMove, cellInUse} }

// A group serves the calls.
type group struct {
	cells inbox.Cells // nil if the inbox has one database
}

// Calls describes the group in the API. Its calls refuse if cells is nil.
func Calls(cells inbox.Cells) api.Group {
	g := &group{cells}
	return api.Group{Operations: func(api.Server) []rest.Operation { return g.operations() }}
}

func (g *group) operations() []rest.Operation {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	move := inbox.Move{
		ID: "0c5b2d2e-6c0f-4be1-9d0a-2b1c6c8f7e11", From: "home", To: "b", Slots: 2048, Step: "copying", By: "ann",
		Begun: now,
	}
	view := inbox.View{
		Inbox: "4a1f9b0e-52a3-4c68-8f0e-0d3c1f1f2a77", Slots: store.InboxSlots,
		Cells: []inbox.Cell{{Name: "home", Slots: 4096, Spans: "0-4095", Waiting: 12}, {Name: "b"}}, Moves: []inbox.Move{move},
	}
	return []rest.Operation{
		rest.Typed(rest.Operation{
			Method: http.MethodGet, Path: "/admin/v1/inbox", ID: "get-inbox", Need: rest.Views, Tag: "admin",
			Summary: "Read which database of the inbox has which keys, and current moves",
			About: "The slot of a key is the first two bytes of its SHA-256, modulo 4096. With `loads` the databases count what each slot " +
				"has, which takes seconds if that is millions.",
			Replies:  []rest.Reply{{About: "The cells and the moves.", Example: view}},
			Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{noCells},
		}, g.readInbox),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/inbox/moves", ID: "move-slots", Need: rest.Rules, Tag: "admin",
			Summary: "Move slots of keys from one database of the inbox to another",
			About: "The move runs in the background. Read the inbox to see its progress. While slots are frozen, usually for milliseconds, " +
				"calls that submit events of their keys wait up to five seconds. A move that fails is undone.",
			Example: remote.InboxMoveRequest{Slots: "0-2047", To: "b"},
			Replies: []rest.Reply{
				{Status: http.StatusAccepted, About: "The move, which has started.", Example: move},
				{About: "The plan of a dry run.", Body: inbox.Move{}},
			},
			Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{invalidMove, noCells},
		}, g.moveSlots),
		rest.Typed(rest.Operation{
			Method: http.MethodPost, Path: "/admin/v1/inbox/removals", ID: "remove-cell", Need: rest.Rules, Tag: "admin",
			Summary: "Remove a database from the inbox for good",
			About: "The server refuses while the database has slots, events for other databases, or runs. All nodes drop it within a " +
				"second. Its name and its number are never reused. Afterwards restart the nodes without it, and drop the database.",
			Example:  remote.InboxRemovalRequest{Cell: "b"},
			Replies:  []rest.Reply{{About: "The inbox without it.", Example: view}},
			Refusals: []string{problem.StoreUnavailable}, Problems: []problem.Kind{cellInUse, noCells},
		}, g.removeCell),
	}
}

// divided refuses calls if the inbox has one database.
func (g *group) divided() error {
	if g.cells == nil {
		return noCells.New("the inbox has one database; serve --cell NAME=postgres://… adds others")
	}
	return nil
}

func (g *group) inboxView(c *rest.Call) (v inbox.View, err error) {
	if err := g.divided(); err != nil {
		return v, err
	}
	return g.cells.Inbox(c.Context())
}

type readInbox struct {
	Loads bool `query:"loads" doc:"Also the load of each slot."`
}

func (g *group) readInbox(c *rest.Call, in *readInbox) (v inbox.View, err error) {
	if v, err = g.inboxView(c); err == nil && in.Loads {
		v.Loads, err = g.cells.Loads(c.Context())
	}
	return v, err
}

type moveSlots struct{ Body remote.InboxMoveRequest }

// moveSlots replies 202 to a move that has begun, and 200 to a preview.
func (g *group) moveSlots(c *rest.Call, in *moveSlots) (m inbox.Move, err error) {
	if err := g.divided(); err != nil {
		return m, err
	}
	b := &in.Body
	o := inbox.Order{To: b.To, Wait: time.Duration(b.Wait)}
	if o.Slots, err = inbox.ParseSlots(b.Slots); err != nil {
		return m, problem.Body([]problem.Fault{{Location: "/slots", Message: err.Error()}})
	}
	if b.DryRun {
		c.Status(http.StatusOK)
	}
	m, err = g.cells.MoveSlots(c.Context(), o, c.Actor(b.Reason), b.DryRun)
	if refused, ok := errors.AsType[*inbox.OrderError](err); ok {
		err = invalidMove.New("%s", refused.Message)
	}
	return m, err
}

type removeCell struct{ Body remote.InboxRemovalRequest }

// removeCell replies with the inbox without the database.
func (g *group) removeCell(c *rest.Call, in *removeCell) (v inbox.View, err error) {
	if err := g.divided(); err != nil {
		return v, err
	}
	err = g.cells.RemoveCell(c.Context(), in.Body.Cell, in.Body.Forget, c.Actor(in.Body.Reason))
	var refused *inbox.OrderError
	switch {
	case errors.As(err, &refused):
		return v, cellInUse.New("%s", refused.Message)
	case err != nil:
		return v, err
	}
	return g.inboxView(c)
}
