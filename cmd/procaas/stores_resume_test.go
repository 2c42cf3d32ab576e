package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
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
			if kind == "cells" || kind == "canary" || kind == "shadow" {
				continue // the runs of cells are those of postgres; for the others, see TestTrialsOfEarlierVersionsEnd
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

// TestTrialsOfEarlierVersionsEnd goes on with a canary and with a version in the shadow that an earlier version began. Each run ends by the
// version that it began with, and people decide about the trial.
func TestTrialsOfEarlierVersionsEnd(t *testing.T) {
	t.Parallel()
	for _, dir := range earlierVersions(t) {
		for kind, end := range map[string]func(*trialStore){"canary": endCanary, "shadow": endShadow} {
			if slices.Contains(kindsOf(dir), kind) {
				t.Run(filepath.Base(dir)+"/"+kind, func(t *testing.T) {
					t.Parallel()
					end(openTrial(t, dir, kind))
				})
			}
		}
	}
}

// A trialStore is a node on an earlier store with a trial.
type trialStore struct {
	*operated
	was, tried string // the versions
	old        bool   // its runs have waited for longer than they may, and failed
}

func openTrial(t *testing.T, dir, kind string) *trialStore {
	t.Helper()
	o := &operated{t: t, dir: filepath.Join("..", "..", "testdata", "stores", "trial")}
	o.server = startNode(t, earlierStore(t, dir, kind).Store, filepath.Join(o.dir, "order.yaml"))
	o.client = client.New(o.server, "")
	v, err := o.client.Canary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &trialStore{o, v.Old, v.New, time.Since(*v.Began) > longestWait}
}

// order submits an order, and returns the version that its run uses.
func (s *trialStore) order(key, id string) string {
	s.t.Helper()
	receipt, err := s.client.SubmitEvent(s.t.Context(), wire.Event{Type: "order", Key: key, ID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	var version string
	eventually(s.t, "the run to wait", func() bool {
		r, err := s.client.Run(s.t.Context(), receipt.Run)
		if err != nil {
			s.t.Fatal(err)
		}
		version = r.Bundle
		return r.Status == model.Parked
	})
	return version
}

// approve lets the waiting runs of all keys go on, and returns how many have ended by each version. The price that a run has computed says
// which version it was.
func (s *trialStore) approve() map[string]int {
	s.t.Helper()
	page, err := s.client.Runs(s.t.Context(), store.RunFilter{Status: model.Parked, Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	by := map[string]int{}
	for _, waits := range page.Items {
		if _, err := s.client.SubmitEvent(s.t.Context(), wire.Event{Type: "approved", Key: waits.Key, ID: "approved-" + waits.ID}); err != nil {
			s.t.Fatal(err)
		}
		eventually(s.t, "the run to end", func() bool {
			r, err := s.client.Run(s.t.Context(), waits.ID)
			if err != nil {
				s.t.Fatal(err)
			}
			if !r.Status.Ended() {
				return false
			}
			want := map[string]string{s.was: "11", s.tried: "22"}[r.Bundle]
			if have := fmt.Sprint(r.SharedState["price"]); r.Status != model.Succeeded || want == "" || have != want {
				s.t.Errorf("want the price %s of version %.12s, have %s, %s", want, r.Bundle, have, r.Status)
			}
			by[r.Bundle]++
			return true
		})
	}
	return by
}

func endCanary(s *trialStore) {
	s.command(0, "running at 50% of keys", "release", "canary")
	page, err := s.client.Runs(s.t.Context(), store.RunFilter{Bundle: s.tried, Limit: 100})
	if err != nil || len(page.Items) == 0 {
		s.t.Fatal("want runs on the version that is tried, have", page, err)
	}
	if s.old {
		s.command(0, "at 100% of keys", "release", "promote")
		return
	}
	if by := s.approve(); by[s.tried] != len(page.Items) || by[s.was] != 10-len(page.Items) || by[s.was] < 2 {
		s.t.Errorf("want %d of 10 runs ended by the version that is tried, have %v", len(page.Items), by)
	}
	chosen := page.Items[0].Key
	if version := s.order(chosen, "again"); version != s.tried {
		s.t.Errorf("want key %s to stay with the version that is tried, have %s", chosen, version)
	}
	s.command(0, "at 100% of keys", "release", "promote", "--reason", "it is well")
	if version := s.order("old-1", "after"); version != s.tried {
		s.t.Errorf("want all keys on the version after it was promoted, have %s", version)
	}
	s.approve()
}

func endShadow(s *trialStore) {
	s.command(0, "(?s)running, 100% of the ended runs.*1 different", "release", "canary")
	if s.old {
		s.command(0, "", "release", "rollback")
		return
	}
	if by := s.approve(); by[s.was] != 1 || by[s.tried] != 0 {
		s.t.Errorf("want the run that waits ended by its version, have %v", by)
	}
	eventually(s.t, "the replay of the run", func() bool {
		v, err := s.client.Canary(s.t.Context())
		return err == nil && v.Shadow.Total().Different == 2
	})
	s.command(0, "", "release", "rollback", "--reason", "it is not well")
	s.command(0, "rolled back", "release", "canary")
	if version := s.order("fresh", "after"); version != s.was {
		s.t.Errorf("want the version of before, have %s", version)
	}
}
