package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/enginetest"
	"procaas/engine/store"
	"procaas/handlers/sharding/transfers"
)

// single reports whether placements overlap in a map whose keys have one place each.
func single(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
}

func waiting(i int, source, target string) *transfers.ShardTransfer {
	return &transfers.ShardTransfer{
		ID: fmt.Sprint("t", i), Map: "mail", Key: fmt.Sprint(i), Source: source, Target: target,
		State: transfers.TransferWaiting, Started: time.Now(),
	}
}

// waits reports whether a transfer waits for something.
func waits(err error) bool {
	var w waitError
	return errors.As(err, &w)
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
			err := acquire(ctx, store, 0, waiting(i, "s1", "s2"), single, turn{perSource: 4, perTarget: 8}, time.Now())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				got++
			case waits(err):
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
	if err := acquire(ctx, store, 0, waiting(100, "s3", "s2"), single, turn{perSource: 4, perTarget: 5}, time.Now()); err != nil {
		t.Errorf("a fifth one to s2: %v", err)
	}
	if err := acquire(ctx, store, 0, waiting(101, "s4", "s2"), single, turn{perSource: 4, perTarget: 5}, time.Now()); !waits(err) {
		t.Errorf("a sixth one to s2: have %v, want that it waits", err)
	}
	if err := acquire(ctx, store, 0, waiting(102, "s1", "s5"), single, turn{perSource: 4, perTarget: 5},
		time.Now().Add(deadAfter)); err != nil {
		t.Errorf("when the others have been silent for long: %v", err)
	}
}

// A transfer that asks again is where it was; one that has ended leaves its lane.
func TestLaneIsFoundAgainAndReused(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	for i := range 3 * endedLanes {
		one := waiting(i, "s1", "s2")
		if err := acquire(ctx, store, 0, one, single, turn{perSource: 1, perTarget: 1}, time.Now()); err != nil {
			t.Fatal(err)
		}
		again := waiting(i, "s1", "s2")
		if err := acquire(ctx, store, 0, again, single, turn{perSource: 1, perTarget: 1}, time.Now()); err != nil || again.Lane != one.Lane {
			t.Fatalf("asked again: lane %s, %v; want %s", again.Lane, err, one.Lane)
		}
		one.State = transfers.TransferDone
		write(ctx, t, store, one)
	}
	all, err := transfers.ReadShardTransfers(ctx, store, "mail")
	if err != nil || len(all) != endedLanes {
		t.Errorf("%d transfers are kept, %v; want the last %d", len(all), err, endedLanes)
	}
}

// A transfer that is only observed takes nobody's place, however many there are.
func TestObservedTransfersHoldNoLane(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	for i := range 3 * endedLanes {
		one := waiting(i, "s1", "s2")
		if err := acquire(ctx, store, 0, one, single, turn{perSource: 1, perTarget: 1}, time.Now()); err != nil {
			t.Fatalf("transfer %d: %v", i, err)
		}
		one.State = transfers.TransferObserving
		write(ctx, t, store, one)
	}
}

// What waits for its hours, or for another transfer, is there to see and holds nobody up; it begins when it
// may, can be cancelled, and does not undo what somebody has decided meanwhile.
func TestWaitingTransfersAreSeenAndHoldNobodyUp(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	open, night := turn{perSource: 4, perTarget: 4}, turn{perSource: 4, perTarget: 4, hours: waitsFor("it waits for the hours 22-6")}
	at := func(id int, key, source string) *transfers.ShardTransfer {
		t := waiting(id, source, "s2")
		t.Key = key
		return t
	}
	seen := func(id string) transfers.ShardTransfer {
		t.Helper()
		one, err := transfers.ReadShardTransfer(ctx, store, id)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	for _, id := range []int{1, 3} {
		nightly := at(id, fmt.Sprint(40+id), "s1")
		nightly.Hours = "22-6"
		for range 2 {
			if err := acquire(ctx, store, 0, nightly, single, night, time.Now()); !waits(err) {
				t.Fatalf("by day: %v", err)
			}
		}
		if have := seen(nightly.ID); have.State != transfers.TransferWaiting || have.Waits != "it waits for the hours 22-6" {
			t.Errorf("shown is %+v", have)
		}
	}
	operators := at(2, "41", "s1")
	if err := acquire(ctx, store, 0, operators, single, open, time.Now()); err != nil {
		t.Fatalf("the operator's own: %v", err)
	}
	behind := at(4, "41/inbox", "s1")
	if err := acquire(ctx, store, 0, behind, single, open, time.Now()); !waits(err) {
		t.Fatalf("another one of its rows: %v", err)
	}
	if have := seen(behind.ID); !strings.Contains(have.Waits, `it waits for transfer t2 of "41", which is waiting`) {
		t.Errorf("shown is %+v", have)
	}
	operators.State = transfers.TransferDone
	write(ctx, t, store, operators)
	if err := acquire(ctx, store, 0, behind, single, open, time.Now()); err != nil {
		t.Fatal(err)
	}
	if have := seen(behind.ID); have.Waits != "" || strings.Contains(have.Lane, "wait") {
		t.Errorf("it has begun, and is shown as %+v", have)
	}
	moved := at(1, "41", "s3")
	moved.Hours = "22-6"
	if err := acquire(ctx, store, 0, moved, single, open, time.Now()); !errors.Is(err, errMoved) {
		t.Errorf("by night, when the key has moved: %v", err)
	}
	if have := seen("t1"); have.State != transfers.TransferFailed {
		t.Errorf("shown is %+v", have)
	}
	stays := at(3, "43", "s1")
	stays.Hours = "22-6"
	if err := acquire(ctx, store, 0, stays, single, open, time.Now()); err != nil {
		t.Errorf("by night: %v", err)
	}
}

func write(ctx context.Context, t *testing.T, db store.Documents, one *transfers.ShardTransfer) {
	t.Helper()
	value, err := json.Marshal(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.WriteDocuments(ctx, 0,
		[]store.DocumentWrite{{Kind: transfers.DocShardTransfer, Name: one.Lane, Version: store.AnyVersion, Value: value}}, nil); err != nil {
		t.Fatal(err)
	}
}

// What one transfer deletes or brings back in the end must not be what another one moves.
func TestTransfersOfTheSameRowsWaitForEachOther(t *testing.T) {
	t.Parallel()
	store, ctx := enginetest.NewMemory(), t.Context()
	first := waiting(7, "s1", "s2")
	if err := acquire(ctx, store, 0, first, single, turn{perSource: 9, perTarget: 9}, time.Now()); err != nil {
		t.Fatal(err)
	}
	back := waiting(8, "s2", "s1")
	back.Key = "7/archive"
	for _, state := range []string{transfers.TransferRunning, transfers.TransferObserving, transfers.TransferCleaning} {
		first.State = state
		write(ctx, t, store, first)
		if err := acquire(ctx, store, 0, back, single, turn{perSource: 9, perTarget: 9}, time.Now()); !waits(err) {
			t.Errorf("while the first one is %s: have %v, want that it waits", state, err)
		}
	}
	first.State = transfers.TransferDone
	write(ctx, t, store, first)
	if err := acquire(ctx, store, 0, back, single, turn{perSource: 9, perTarget: 9}, time.Now()); err != nil {
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
		{"", 12, 0},
		{"22-6", 23, 0},
		{"22-6", 3, 0},
		{"22-6", 6, 15*time.Hour + 30*time.Minute},
		{"22-6", 12, 9*time.Hour + 30*time.Minute},
		{"1-5", 0, 30 * time.Minute},
		{"1-5", 4, 0},
		{"1-5", 5, 19*time.Hour + 30*time.Minute},
		{"0-24", 23, 0},
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
