package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/store"
)

// longestWait is for how long the runs of a store wait. In an older one, waits for workers and events have failed.
const longestWait = 8760 * time.Hour

// ends are the runs of earlier stores that wait, by the ids of their events, and how they end when nothing holds them any more.
var ends = map[string]model.Status{
	"parked-1":           model.Succeeded,
	"waits-for-parked-1": model.Succeeded,
	"undone-1":           model.Cancelled,
	"loop-1":             model.Succeeded,
	"caller-1":           model.Succeeded,
	"scored-1":           model.Succeeded,
	"front-deferred":     model.Succeeded,
	"early-1":            model.Succeeded,
	"unknown-1":          model.Cancelled,
	"retried-1":          model.Cancelled,
	"broken-1":           model.Failed, // again
	"held-1":             model.Failed,
}

// TestRunsOfEarlierVersionsEnd lets nodes go on with the runs that wait in stores of earlier versions: for events, in loops, in calls and
// in the middle of an undo, for workers, and for people.
func TestRunsOfEarlierVersionsEnd(t *testing.T) {
	t.Parallel()
	for _, dir := range earlierVersions(t) {
		for _, kind := range kindsOf(dir) {
			if kind == "cells" {
				continue // its runs are those of postgres
			}
			t.Run(filepath.Base(dir)+"/"+kind, func(t *testing.T) {
				t.Parallel()
				endAll(t, filepath.Base(dir), earlierStore(t, dir, kind))
			})
		}
	}
}

func endAll(t *testing.T, version string, from serve.Flags) {
	t.Helper()
	const token = "an-admin-of-the-stores"
	server := startNode(t, from.Store, filepath.Join("..", "..", "testdata", "stores", "flows"), func(f *serve.Flags) {
		f.Keys, f.Access.Token = from.Keys, token
	})
	c := client.New(server, token)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	controls, err := c.Controls(t.Context())
	must(err)
	for _, held := range controls {
		if held.Mode == guard.ModeHold && !held.Expired {
			_, err := c.RemoveControl(t.Context(), held.Path, "go on", held.Revision)
			must(err)
		}
	}
	for _, e := range []wire.Event{
		{Type: "approved", Key: "o-1", ID: "approved-1"},
		{Type: "approved", Key: "o-1", ID: "approved-2"},
		{Type: "agreed", Key: "caller", ID: "agreed-1"},
		{Type: "closed", Key: "front", ID: "closed-1"},
		{Type: "early", Key: "o-2", ID: "early-1"}, // it takes the event that was kept, as long as that is
		{Type: "paid", Key: "o-2", ID: "paid-1"},
	} {
		if version == "131cd4df" && e.Type != "approved" {
			continue
		}
		_, err := c.SubmitEvent(t.Context(), e)
		must(err)
	}
	have, again, old := map[string]model.Status{}, map[string]bool{}, false
	eventually(t, "the runs to end", func() bool {
		score(t, c)
		page, err := c.Runs(t.Context(), store.RunFilter{Limit: 200})
		must(err)
		ended := true
		for _, r := range page.Items {
			id := r.Event.ID
			want, known := ends[id]
			if !known {
				continue
			}
			have[id] = r.Status
			switch {
			case r.Status == want && (want != model.Failed || again[id]):
				continue
			case r.Status == model.Failed && want == model.Succeeded && time.Since(r.Accepted) > longestWait:
				old = true
				continue
			case want == model.Cancelled && id != "undone-1":
				_, err = c.Cancel(t.Context(), r.ID, "nobody knows more")
			case want == model.Failed && r.Status == model.Failed:
				_, err = c.Retry(t.Context(), r.ID, "once more")
				again[id] = true
			}
			must(err)
			ended = false
		}
		return ended
	})
	if version == "131cd4df" { // its language has no others
		if len(have) != 4 {
			t.Errorf("have %v", have)
		}
		return
	}
	if len(have) != len(ends) {
		t.Errorf("want %d runs, have %v", len(ends), have)
	}
	if old {
		return
	}
	e, err := c.Entity(t.Context(), "case", "loop")
	must(err)
	want := `{"notes":[{"twice":2},{"twice":7},{"twice":6}]}`
	if text, err := json.Marshal(e.SharedState); err != nil || string(text) != want {
		t.Errorf("the loop: want %s, have %s, %v", want, text, err)
	}
}

// score does the tasks that runs wait for.
func score(t *testing.T, c *client.Client) {
	t.Helper()
	type task struct{ Receipt string }
	claimed, err := client.Send[struct{ Items []task }](t.Context(), c, http.MethodPost, "/v1/queues/claim",
		json.RawMessage(`{"worker": "w", "types": [{"type": "scores", "limit": 9}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range claimed.Items {
		body := map[string]any{"results": []any{map[string]any{"receipt": one.Receipt, "result": map[string]any{"score": 7}}}}
		if _, err := client.Send[json.RawMessage](t.Context(), c, http.MethodPost, "/v1/queues/complete", body, nil); err != nil {
			t.Fatal(err)
		}
	}
}
