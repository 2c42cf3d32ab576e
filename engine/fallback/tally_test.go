package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"procaas/dsl/contracts"
	"procaas/dsl/tree"
	"procaas/engine/model"
	"procaas/engine/planner"
	"procaas/engine/store"
)

func TestFallbackCountsTheErrorsThatItSays(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return fmt.Errorf("call: %w", &model.StatusError{Status: n}) }
	errs := map[string]error{
		"500": status(500), "429": status(429), "404": status(404), "timeout": context.DeadlineExceeded,
		"after": model.After(time.Second, status(503)), "other": errors.New("no"), "permanent": model.Permanent(errors.New("no")),
		"schema": model.Permanent(fmt.Errorf("response: %w", &contracts.Error{})),
	}
	for _, tc := range []struct {
		on   []string
		want []string
	}{
		{nil, []string{"429", "500", "after", "other", "schema", "timeout"}},
		{[]string{"429"}, []string{"429"}},
		{[]string{"4xx", "timeout"}, []string{"404", "429", "timeout"}},
		{[]string{"any"}, []string{"404", "429", "500", "after", "other", "permanent", "schema", "timeout"}},
	} {
		s := &planner.Step{Handler: &tree.Handler{Fallback: &tree.Fallback{On: tc.on}}}
		var have []string
		for name, err := range errs {
			if s.Fails(err) {
				have = append(have, name)
			}
		}
		if slices.Sort(have); !slices.Equal(have, tc.want) {
			t.Errorf("on %v: want %v to count, have %v", tc.on, tc.want, have)
		}
	}
}

// Calls that began before the handler was to be tried again tell of the time before.
func TestCallsOfAnotherTimeDoNotCount(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	critical := false
	s := &planner.Step{Path: "p/s/h", Handler: &tree.Handler{Critical: &critical, Fallback: &tree.Fallback{}}}
	for _, tc := range []struct {
		phase         string
		turned, until time.Duration // from now
		took          time.Duration
		counts        bool
	}{
		{"", 0, 0, time.Hour, true},
		{Out, -time.Minute, time.Minute, 2 * time.Minute, false},
		{Out, -time.Minute, -time.Second, 2 * time.Second, false}, // it is probing by now
		{Out, -time.Minute, -3 * time.Second, 2 * time.Second, true},
		{Probing, -time.Second, 0, 2 * time.Second, false},
		{Probing, -3 * time.Second, 0, 2 * time.Second, true},
		{Ramping, -time.Second, time.Minute, 2 * time.Second, false},
	} {
		var d Live
		var state State
		if tc.phase != "" {
			state.Outages = []*Outage{{
				Name: s.Path, Members: []string{s.Path}, Phase: tc.phase, Turned: now.Add(tc.turned),
				Until: now.Add(tc.until),
			}}
		}
		live, err := NewOutages(model.EncodeJSON(state), 1)
		if err != nil {
			t.Fatal(err)
		}
		d.Known.Store(live)
		d.Count(s, &model.StatusError{Status: 500}, tc.took, now)
		if n := len(d.tallies.take(now.Unix() + 1)); (n == 1) != tc.counts {
			t.Errorf("%+v: counted %d times", tc, n)
		}
	}
}

// The tallies that stores keep are those that were handed in.
func TestTalliesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	want := []model.Tally{
		{Path: "p/s/a", Second: 1, Good: 2, Bad: 3},
		{Path: "p/s/a", Second: 2, Good: 0, Bad: 1},
		{Path: "p/s/ü \"b\"", Second: 1, Good: 5, Bad: 0},
	}
	have, err := store.DecodeTallies(nil, store.EncodeTallies(want))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(have, func(a, b model.Tally) int {
		if a.Path != b.Path {
			return slices.Compare([]byte(a.Path), []byte(b.Path))
		}
		return int(a.Second - b.Second)
	})
	if !slices.Equal(have, want) {
		t.Errorf("want %v, have %v", want, have)
	}
	if _, err := store.DecodeTallies(nil, []byte("{")); err == nil {
		t.Error("want broken JSON refused")
	}
}
