package console_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"procaas/engine/credentials"
	"procaas/engine/enginetest/pages"
	"procaas/handlers/inbox"
	"procaas/handlers/inbox/console"
)

type divided struct{ inbox.Cells }

func (divided) Inbox(context.Context) (inbox.View, error) {
	now := time.Now()
	return inbox.View{
		Slots: 4096,
		Cells: []inbox.Cell{
			{Name: "home", Slots: 3072, Spans: "0-3071", Waiting: 12, Outbox: 1000}, {
				Name: "b", Slots: 1024, Spans: "3072-4095",
				Away: "dial <b>: refused",
			}, {Name: "new"},
		},
		Moves: []inbox.Move{
			{ID: "m-2", From: "home", To: "new", Slots: 512, Step: "copying", By: "ann", Reason: "<b>", Begun: now, Rows: 41},
			{
				ID: "m-1", From: "b", To: "home", Slots: 256, Step: "undone", Begun: now.Add(-3 * time.Second), Ended: &now, FrozenS: 0.017,
				Error: "b is <b>",
			},
		},
	}, nil
}

func TestTheInboxHasItsPage(t *testing.T) {
	t.Parallel()
	o := pages.Options(credentials.Grant{}, console.Pages(divided{})...)
	pages.Open(t, o, "/console/inbox", http.StatusOK, `aria-current="page">Inbox`, "4096 slots", `width="75"`, "75 %", "1000 or more",
		"The database b cannot be reached: dial &lt;b&gt;: refused",
		"unknown", "copying", "so far", "undone", "17 ms", "<td class=\"number\">3.0 s")
	pages.Open(t, o, "/console/queue", http.StatusOK, "By databases of the inbox")
	pages.Open(t, pages.Options(credentials.Grant{}, console.Pages(nil)...), "/console/inbox", http.StatusOK,
		"The inbox has one database", "serve --cell")
}
