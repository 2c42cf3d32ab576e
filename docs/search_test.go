package docs_test

import (
	"slices"
	"strings"
	"testing"

	"procaas/docs"
)

// Readers type words as they come to mind, and lines break anywhere.
func TestSearchFindsAllWordsInAnyOrder(t *testing.T) {
	t.Parallel()
	found := func(query string) []docs.Hit {
		t.Helper()
		hits, err := docs.Search(query)
		if err != nil {
			t.Fatal(err)
		}
		return hits
	}
	timers := func(h docs.Hit) bool {
		return h.Page.Name == "authoring/timers" && strings.Contains(h.Text, "time-zone")
	}
	if hits := found("UTC weekday Cron"); !slices.ContainsFunc(hits, timers) {
		t.Errorf("want the paragraph on cron, have %v", hits)
	}
	if hits := found("idempotency key"); len(hits) < 2 || !strings.Contains(strings.ToLower(hits[0].Text), "idempotency key") {
		t.Errorf("want the exact words first, have %v", hits)
	}
	if hits := found("idempotency xylophone"); len(hits) > 0 {
		t.Errorf("want nothing that lacks a word, have %v", hits)
	}
}
