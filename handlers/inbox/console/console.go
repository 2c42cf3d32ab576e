// Package console has the page of an inbox over several databases.
package console

import (
	_ "embed" // the template
	"net/http"
	"time"

	"procaas/engine/api/ui"
	"procaas/engine/api/ui/words"
	"procaas/engine/credentials"
	"procaas/handlers/inbox"
)

//go:embed inbox.html
var text string

// link leads from the page of what waits to this one.
const link = `{{define "page"}}<p><a href="/console/inbox">By databases of the inbox</a></p>{{end}}`

// Pages returns the pages. Cells are nil if the inbox has one database. Then the menu does not name it.
func Pages(cells inbox.Cells) []ui.Page {
	p := pages{cells}
	page := ui.Page{Pattern: "inbox", Before: "Clusters", Template: text, Data: p.inbox}
	if cells == nil {
		return []ui.Page{page}
	}
	page.Menu = "Inbox"
	none := func(*http.Request, credentials.Grant) (string, any, error) { return "", nil, nil }
	return []ui.Page{page, {Pattern: "inbox/", In: "queue", Template: link, Data: none}}
}

type pages struct{ cells inbox.Cells }

type inboxData struct {
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

// countedOutbox is how many events of an outbox are counted.
const countedOutbox = 1000

// inbox shows the databases of the inbox, and the slots that move between them.
func (p pages) inbox(r *http.Request, _ credentials.Grant) (title string, data any, err error) {
	const page = "Inbox"
	if p.cells == nil {
		return page, inboxData{}, nil
	}
	v, err := p.cells.Inbox(r.Context())
	if err != nil {
		return "", nil, err
	}
	d := inboxData{Divided: true, Slots: v.Slots}
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
	return page, d, nil
}
