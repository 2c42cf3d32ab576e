package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
)

// single is the layout of a map whose keys have one place each.
var single = layout{strategy: "directory", parts: 2}

func waiting(i int, source, target string) *engine.ShardTransfer {
	return &engine.ShardTransfer{ID: fmt.Sprint("t", i), Map: "mail", Key: fmt.Sprint(i), Source: source, Target: target,
		State: engine.TransferWaiting, Started: time.Now()}
}

// However many ask at once, no shard takes part in more transfers than it may.
func TestLanesBoundTransfers(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	var wait sync.WaitGroup
	var mu sync.Mutex
	got, full := 0, 0
	for i := range 20 {
		wait.Go(func() {
			err := acquire(ctx, store, 0, waiting(i, "s1", "s2"), single, 4, 8, time.Now())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got++
			case errors.Is(err, errFull):
				full++
			default:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if got != 4 || full != 16 {
		t.Errorf("%d of 20 have got a lane and %d not, want 4 and 16", got, full)
	}
	if err := acquire(ctx, store, 0, waiting(100, "s3", "s2"), single, 4, 5, time.Now()); err != nil {
		t.Errorf("a fifth one to s2: %v", err)
	}
	if err := acquire(ctx, store, 0, waiting(101, "s4", "s2"), single, 4, 5, time.Now()); !errors.Is(err, errFull) {
		t.Errorf("a sixth one to s2: have %v, want %v", err, errFull)
	}
	if err := acquire(ctx, store, 0, waiting(102, "s1", "s5"), single, 4, 5, time.Now().Add(deadAfter)); err != nil {
		t.Errorf("when the others have been silent for long: %v", err)
	}
}

// A transfer that asks again is where it was; one that has ended leaves its lane.
func TestLaneIsFoundAgainAndReused(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	for i := range 2 * lanes {
		one := waiting(i, "s1", "s2")
		if err := acquire(ctx, store, 0, one, single, 1, 1, time.Now()); err != nil {
			t.Fatal(err)
		}
		again := waiting(i, "s1", "s2")
		if err := acquire(ctx, store, 0, again, single, 1, 1, time.Now()); err != nil || again.Lane != one.Lane {
			t.Fatalf("asked again: lane %s, %v; want %s", again.Lane, err, one.Lane)
		}
		one.State = engine.TransferDone
		write(ctx, t, store, one)
	}
	all, err := engine.ReadShardTransfers(ctx, store, "mail")
	if err != nil || len(all) != lanes {
		t.Errorf("%d transfers are kept, %v; want the last %d", len(all), err, lanes)
	}
}

func write(ctx context.Context, t *testing.T, store engine.Documents, one *engine.ShardTransfer) {
	t.Helper()
	value, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.WriteDocuments(ctx, 0, []engine.DocumentWrite{{Kind: engine.DocShardTransfer, Name: one.Lane, Version: engine.AnyVersion, Value: value}}, nil); err != nil {
		t.Fatal(err)
	}
}

// What one transfer deletes or brings back in the end must not be what another one moves.
func TestTransfersOfTheSameRowsWaitForEachOther(t *testing.T) {
	t.Parallel()
	slots, stretches := layout{strategy: "slots", slots: 16, parts: 2}, layout{strategy: "range", parts: 1, ints: true}
	for _, c := range []struct {
		l    layout
		a, b string
		want bool
	}{
		{single, "42", "42", true}, {single, "42", "42/archive", true}, {single, "42/a", "42/b", false}, {single, "4", "42", false},
		{slots, "#3", "#3", true}, {slots, "#3", "#4", false}, {slots, slots.slot("u1"), "u1/inbox", true}, {slots, "#16", "u1", false},
		{stretches, "[100", "150", true}, {stretches, "[100", "99", false}, {stretches, "[", "-7", true}, {stretches, "[", "[100", false},
	} {
		if c.l.overlap(c.a, c.b) != c.want || c.l.overlap(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
	store, ctx := enginetest.NewMemory(), t.Context()
	first := waiting(7, "s1", "s2")
	if err := acquire(ctx, store, 0, first, single, 9, 9, time.Now()); err != nil {
		t.Fatal(err)
	}
	back := waiting(8, "s2", "s1")
	back.Key = "7/archive"
	for _, state := range []string{engine.TransferRunning, engine.TransferObserving, engine.TransferCleaning} {
		first.State = state
		write(ctx, t, store, first)
		if err := acquire(ctx, store, 0, back, single, 9, 9, time.Now()); !errors.Is(err, errFull) {
			t.Errorf("while the first one is %s: have %v, want %v", state, err, errFull)
		}
	}
	first.State = engine.TransferDone
	write(ctx, t, store, first)
	if err := acquire(ctx, store, 0, back, single, 9, 9, time.Now()); err != nil {
		t.Errorf("when the first one is over: %v", err)
	}
}

func TestHoursOfTheNight(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 5, 1, hour, 30, 0, 0, time.UTC) }
	for _, c := range []struct {
		hours string
		hour  int
		want  time.Duration
	}{
		{"", 12, 0}, {"22-6", 23, 0}, {"22-6", 3, 0}, {"22-6", 6, 15*time.Hour + 30*time.Minute}, {"22-6", 12, 9*time.Hour + 30*time.Minute},
		{"1-5", 0, 30 * time.Minute}, {"1-5", 4, 0}, {"1-5", 5, 19*time.Hour + 30*time.Minute}, {"0-24", 23, 0},
	} {
		if have, err := untilHour(c.hours, at(c.hour)); err != nil || have != c.want {
			t.Errorf("%q at %d:30: have %v, %v; want %v", c.hours, c.hour, have, err, c.want)
		}
	}
	for _, bad := range []string{"22", "a-b", "22-25", "-1-5", "24-2"} {
		if _, err := untilHour(bad, at(1)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
