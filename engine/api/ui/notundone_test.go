package ui_test

import (
	"context"
	"net/http"
	"testing"

	"procaas/engine/checkpoint"
	"procaas/engine/enginetest/pages"
	"procaas/engine/store"
)

// asked is an engine that notes which runs a page has asked for.
type asked struct {
	pages.Plain
	filter *store.RunFilter
}

// List implements [ui.Runs].
func (a asked) List(_ context.Context, f store.RunFilter) ([]checkpoint.RunView, string, error) {
	*a.filter = f
	return nil, "", nil
}

// The page of a run with something that is not undone leads to the list of all such runs.
func TestRunsThatAreNotUndoneHaveAPage(t *testing.T) {
	t.Parallel()
	o, f := options(), store.RunFilter{}
	o.Engine.Runs = asked{filter: &f}
	pages.Open(t, o, "/console/runs?not_undone=yes", http.StatusOK, "<h1>Runs</h1>")
	if !f.NotUndone {
		t.Errorf("have the filter %+v", f)
	}
}
