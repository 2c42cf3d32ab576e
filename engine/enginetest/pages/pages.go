// Package pages opens pages of the console in tests.
package pages

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procaas/dsl/tree"
	"procaas/engine/api/ui"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/planner"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// Plain is an engine of which only what all pages need is there.
type Plain struct{ ui.Engine }

// Bundle implements [ui.Definition].
func (Plain) Bundle() *tree.Bundle { return &tree.Bundle{} }

// Plans implements [ui.Definition].
func (Plain) Plans() []*planner.Plan { return nil }

// Backlog implements [ui.Node].
func (Plain) Backlog() stats.BacklogView { return stats.BacklogView{} }

// Handlers implements [ui.Node].
func (Plain) Handlers() []stats.HandlerInfo { return nil }

// Active implements [ui.Node].
func (Plain) Active() []stats.HandlerInfo { return nil }

// Numbers implements [ui.Node].
func (Plain) Numbers() stats.Numbers { return stats.Numbers{} }

// Services implements [ui.Node].
func (Plain) Services() []guard.ServiceInfo { return nil }

// Healthy implements [ui.Node].
func (Plain) Healthy(context.Context) error { return nil }

// Degraded implements [ui.Node].
func (Plain) Degraded() error { return nil }

// Canary implements [ui.History].
func (Plain) Canary() *canary.State { return nil }

// List implements [ui.Runs].
func (Plain) List(context.Context, store.RunFilter) ([]checkpoint.RunView, string, error) {
	return nil, "", nil
}

// Options are those of a console with a plain engine and pages of add-ons, for a caller.
func Options(caller credentials.Grant, added ...ui.Page) ui.Options {
	return ui.Options{
		Engine: ui.Engine{Definition: Plain{}, Node: Plain{}, Runs: Plain{}, History: Plain{}}, Log: slog.New(slog.DiscardHandler),
		Pages:  added,
		Caller: func(*http.Request) credentials.Grant { return caller },
	}
}

// Open opens a page, which must have a status and texts.
func Open(t *testing.T, o ui.Options, path string, status int, want ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	ui.New(o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if w.Code != status {
		t.Errorf("%s: want %d, have %d", path, status, w.Code)
	}
	for _, text := range want {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: want %q, have\n%s", path, text, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "<b><") || strings.Contains(w.Body.String(), "%!") {
		t.Errorf("%s: what comes from elsewhere is text, have\n%s", path, w.Body)
	}
}
