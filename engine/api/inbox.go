package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"procaas/engine"
)

// An InboxMoveRequest asks for a move of slots.
type InboxMoveRequest struct {
	Slots  string `json:"slots" doc:"The slots, all of one cell: numbers and spans." example:"0-2047"`
	To     string `json:"to" doc:"The cell that gets them."`
	Wait   string `json:"wait,omitempty" doc:"How long runs under way get to end or to pause, while nothing of the slots is taken in; 10s when it is left out, at most 5m." example:"30s"`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only say what would be done."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// An InboxRemovalRequest asks for a database to leave the inbox.
type InboxRemovalRequest struct {
	Cell   string `json:"cell" doc:"The database." example:"b"`
	Forget bool   `json:"forget,omitempty" doc:"Let it go although it has runs that have ended, which are in no list any more then; also when it cannot be reached."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

func (s *server) inboxOperations() []operation {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	move := engine.InboxMove{ID: "0c5b2d2e-6c0f-4be1-9d0a-2b1c6c8f7e11", From: "home", To: "b", Slots: 2048, Step: "copying", By: "ann", Begun: now}
	view := engine.InboxView{
		Inbox: "4a1f9b0e-52a3-4c68-8f0e-0d3c1f1f2a77", Slots: engine.InboxSlots,
		Cells: []engine.InboxCell{{Name: "home", Slots: 4096, Spans: "0-4095", Waiting: 12}, {Name: "b"}}, Moves: []engine.InboxMove{move},
	}
	return []operation{
		{
			method: http.MethodGet, path: "/admin/v1/inbox", id: "get-inbox", tag: "admin",
			summary:  "Read which database of the inbox has which keys, and what moves",
			about:    "A key is in the slot that SHA-256 gives it: the first two bytes modulo 4096.",
			replies:  []reply{{status: 200, about: "The cells and the moves.", body: engine.InboxView{}, example: view}},
			refusals: []string{codeNoCells, codeStoreUnavailable}, serve: s.getInbox,
		},
		{
			method: http.MethodPost, path: "/admin/v1/inbox/moves", id: "move-slots", tag: "admin",
			summary: "Move slots of keys from one database of the inbox to another",
			about: "It goes on in the background: read the inbox to see how far it is. While the slots are frozen, usually for milliseconds, events of their keys " +
				"wait at the intake, up to five seconds. A move that cannot be made is undone.",
			body: jsonBody(s.schema(InboxMoveRequest{}), InboxMoveRequest{Slots: "0-2047", To: "b"}),
			replies: []reply{{status: 202, about: "The move, which has begun.", body: engine.InboxMove{}, example: move},
				{status: 200, about: "What would be done.", body: engine.InboxMove{}}},
			refusals: []string{codeInvalidMove, codeNoCells, codeStoreUnavailable}, serve: s.moveSlots,
		},
		{
			method: http.MethodPost, path: "/admin/v1/inbox/removals", id: "remove-cell", tag: "admin",
			summary: "Remove a database from the inbox for good",
			about: "It is refused while the database has slots, events for others, or runs; all nodes leave it within a second. Its name and its number do not come again. " +
				"Afterwards nodes are started anew without it, and the database may be dropped.",
			body:     jsonBody(s.schema(InboxRemovalRequest{}), InboxRemovalRequest{Cell: "b"}),
			replies:  []reply{{status: 200, about: "The inbox without it.", body: engine.InboxView{}, example: view}},
			refusals: []string{codeCellInUse, codeNoCells, codeStoreUnavailable}, serve: s.removeCell,
		},
	}
}

// divided gives the inbox when it is over several databases.
func (s *server) divided() (engine.InboxCells, error) {
	if s.inbox == nil {
		return nil, refuse(codeNoCells, "the inbox has one database; serve --cell NAME=postgres://… adds others")
	}
	return s.inbox, nil
}

func (s *server) getInbox(w http.ResponseWriter, r *http.Request) error {
	inbox, err := s.divided()
	if err != nil {
		return err
	}
	v, err := inbox.Inbox(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// moveSlots replies 202 to a move that has begun, and 200 to what one would be.
func (s *server) moveSlots(w http.ResponseWriter, r *http.Request) error {
	inbox, err := s.divided()
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	o := engine.InboxOrder{To: f.required("to")}
	if o.Slots, err = engine.ParseSlots(f.required("slots")); err != nil {
		f.fault("slots", "%s", err)
	}
	o.Wait = f.duration("wait")
	dry, reason := f.boolean("dry_run"), f.label("reason", maxReason)
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	m, err := inbox.MoveSlots(r.Context(), o, actor(r, reason), dry)
	var refused *engine.InboxOrderError
	switch {
	case errors.As(err, &refused):
		return refuse(codeInvalidMove, "%s", refused.Message)
	case err != nil:
		return err
	case dry:
		return writeJSON(w, http.StatusOK, m)
	}
	return writeJSON(w, http.StatusAccepted, m)
}

// removeCell replies with the inbox as it is now, which shows that the database is gone.
func (s *server) removeCell(w http.ResponseWriter, r *http.Request) error {
	inbox, err := s.divided()
	if err != nil {
		return err
	}
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	cell, forget, reason := f.required("cell"), f.boolean("forget"), f.label("reason", maxReason)
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	err = inbox.RemoveCell(r.Context(), cell, forget, actor(r, reason))
	var refused *engine.InboxOrderError
	if errors.As(err, &refused) {
		return refuse(codeCellInUse, "%s", refused.Message)
	}
	if err != nil {
		return err
	}
	return s.getInbox(w, r)
}

// Inbox reads which database has what.
func (c *Client) Inbox(ctx context.Context) (v engine.InboxView, err error) {
	err = c.call(ctx, http.MethodGet, "/admin/v1/inbox", nil, nil, &v)
	return v, err
}

// MoveSlots begins a move of slots.
func (c *Client) MoveSlots(ctx context.Context, order InboxMoveRequest) (m engine.InboxMove, err error) {
	err = c.call(ctx, http.MethodPost, "/admin/v1/inbox/moves", order, nil, &m)
	return m, err
}

// RemoveCell takes a database out of the inbox for good, and gives the inbox without it.
func (c *Client) RemoveCell(ctx context.Context, request InboxRemovalRequest) (v engine.InboxView, err error) {
	err = c.call(ctx, http.MethodPost, "/admin/v1/inbox/removals", request, nil, &v)
	return v, err
}
