package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/clock"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Of one flow, only the order starts a run. Of the other, the first event of each key does.
const twoEvents = `
flows: [{id: order}, {id: parcel}]
pipelines:
  - id: placed
    flow: order
    stages: [{id: s, handlers: [{id: pay, await: {event: paid, buffered: true, timeout: 10m}}]}]
  - id: collect
    flow: parcel
    on: [packed, labelled]
    stages:
      - {id: s, handlers: [{id: other, await: {event: [packed, labelled], where: !$ awaited.type != event.type, timeout: 10m}}]}
`

// TestTwoEventsSurviveKill9 submits two events for each of 1,000 keys, in random order, and kills the built binary twice
// meanwhile. Each key has one run, which has both events.
func TestTwoEventsSurviveKill9(t *testing.T) {
	t.Parallel()
	const keys, batch = 1000, 50
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	c := newCrashing(t, "sqlite:"+filepath.Join(t.TempDir(), "two.db"), twoEvents, "")
	server := c.start(ctx)

	var events []wire.Event
	for n := range keys {
		types := []string{"placed", "paid"}
		if n%2 == 1 {
			types = []string{"packed", "labelled"}
		}
		for _, of := range types {
			events = append(events, wire.Event{Type: of, ID: fmt.Sprint(of, n), Source: "test", Key: fmt.Sprint("k", n)})
		}
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	var sent atomic.Int64
	var senders sync.WaitGroup
	batches := slices.Collect(slices.Chunk(events, batch))
	for i := range 4 {
		senders.Go(func() {
			for n := i; n < len(batches); n += 4 {
				submitAll(ctx, t, c, batches[n])
				sent.Add(batch)
			}
		})
	}
	for _, share := range []int64{3, 2} {
		for sent.Load() < int64(len(events))/share {
			if !clock.Pause(ctx, 5*time.Millisecond) {
				t.Fatal("the events are not accepted")
			}
		}
		server.kill()
		server = c.start(ctx)
	}
	senders.Wait()

	var runs []checkpoint.RunView
	for live := true; live; {
		runs = allRuns(ctx, t, c)
		live = slices.ContainsFunc(runs, func(v checkpoint.RunView) bool { return !v.Status.Ended() })
		if live && !clock.Pause(ctx, 100*time.Millisecond) {
			t.Fatalf("runs have not ended, such as %+v", runs[slices.IndexFunc(runs, func(v checkpoint.RunView) bool { return !v.Status.Ended() })])
		}
	}
	server.terminate()
	if len(runs) != len(events) {
		t.Errorf("want a run for each of %d events, have %d", len(events), len(runs))
	}
	keyOf, takenBy := map[string]string{}, map[string]string{} // by run, and by key
	for _, v := range runs {
		if v.Status != model.Succeeded {
			t.Errorf("run of %s %s: %s (%s)", v.Event.Type, v.Key, v.Status, v.Reason)
		}
		if by, taken := strings.CutPrefix(v.Reason, "taken by run "); taken {
			takenBy[v.Key], _, _ = strings.Cut(by, " ")
		} else {
			keyOf[v.ID] = v.Key
		}
	}
	if len(keyOf) != keys || len(takenBy) != keys {
		t.Errorf("want one run for each of %d keys and one event taken, have %d and %d", keys, len(keyOf), len(takenBy))
	}
	for key, run := range takenBy {
		if keyOf[run] != key {
			t.Errorf("the second event of key %s was taken by run %s of key %q", key, run, keyOf[run])
		}
	}
}

// submitAll submits events, again until they are accepted.
func submitAll(ctx context.Context, t *testing.T, c *crashing, events []wire.Event) {
	body, err := json.Marshal(events)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		var receipts wire.Receipts
		reply, err := c.client.Submit(ctx, body)
		if err == nil {
			err = json.Unmarshal(reply, &receipts)
		}
		if err == nil && !slices.ContainsFunc(receipts.Items, func(r wire.ReceiptItem) bool { return r.Error != nil }) {
			return
		}
		clock.Pause(ctx, 20*time.Millisecond)
	}
}

// allRuns reads all pages of the list of runs.
func allRuns(ctx context.Context, t *testing.T, c *crashing) (all []checkpoint.RunView) {
	t.Helper()
	for cursor := ""; ; {
		page, err := c.client.Runs(ctx, store.RunFilter{Limit: 1000, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all
		}
		cursor = *page.Next
	}
}
