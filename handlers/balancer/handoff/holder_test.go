package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/handlers/balancer/handoff"
)

func order(version int64, partitions ...int) handoff.Order {
	return handoff.Order{Cluster: "fanout", Version: version, Partitions: partitions}
}

// text shows a state: its version, and each partition with its phase.
func text(s handoff.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "v%d", s.Version)
	for _, p := range s.Partitions {
		fmt.Fprintf(&b, " %d:%s@%d", p.Partition, p.Phase, p.Version)
	}
	return b.String()
}

func TestHolderFollowsOrders(t *testing.T) {
	t.Parallel()
	h := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 8})
	t.Cleanup(h.Close)
	for _, step := range []struct {
		name  string
		order func() (handoff.State, error)
		want  string
	}{
		{"prepare", func() (handoff.State, error) { return h.Prepare(order(3, 1, 2)) }, "v3 1:prepared@3 2:prepared@3"},
		{"prepare again", func() (handoff.State, error) { return h.Prepare(order(3, 1, 2)) }, "v3 1:prepared@3 2:prepared@3"},
		{"warm", func() (handoff.State, error) { return h.Warm(order(3, 1)) }, "v3 1:warm@3 2:prepared@3"},
		{"take", func() (handoff.State, error) { return h.Take(order(4, 1)) }, "v4 1:held@4 2:prepared@3"},
		{"take again", func() (handoff.State, error) { return h.Take(order(4, 1)) }, "v4 1:held@4 2:prepared@3"},
		{"take what was not announced", func() (handoff.State, error) { return h.Take(order(5, 7)) }, "v5 1:held@4 2:prepared@3 7:held@5"},
		{"announce what is held", func() (handoff.State, error) { return h.Prepare(order(5, 1)) }, "v5 1:held@4 2:prepared@3 7:held@5"},
		{"release", func() (handoff.State, error) { return h.Release(t.Context(), order(6, 1, 2)) }, "v6 7:held@5"},
		{"release again", func() (handoff.State, error) { return h.Release(t.Context(), order(6, 1, 2)) }, "v6 7:held@5"},
		{"news", func() (handoff.State, error) { return h.Release(t.Context(), order(9)) }, "v9 7:held@5"},
	} {
		have, err := step.order()
		if err != nil || text(have) != step.want {
			t.Fatalf("%s: have %s, %v; want %s", step.name, text(have), err, step.want)
		}
	}
}

func TestHolderRefusesOlderVersions(t *testing.T) {
	t.Parallel()
	h := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 8, Heard: 5})
	for name, follow := range map[string]func(handoff.Order) (handoff.State, error){
		"prepare": h.Prepare, "warm": h.Warm, "take": h.Take,
		"release": func(o handoff.Order) (handoff.State, error) { return h.Release(t.Context(), o) },
	} {
		var outdated *handoff.OutdatedError
		if _, err := follow(order(4, 1)); !errors.As(err, &outdated) || outdated.Heard != 5 {
			t.Errorf("%s by version 4: have %v, want a refusal that names version 5", name, err)
		}
		for _, wrong := range []handoff.Order{{Cluster: "other", Version: 9}, order(0), order(6, -1), order(6, 8)} {
			if _, err := follow(wrong); !errors.As(err, new(*handoff.MisdirectedError)) {
				t.Errorf("%s %+v: have %v, want a refusal", name, wrong, err)
			}
		}
	}
	if have := text(h.State()); have != "v5" {
		t.Errorf("after refusals: have %s, want v5", have)
	}
}

func TestReleaseWaitsForRequestsUnderWay(t *testing.T) {
	t.Parallel()
	h := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 8, Drain: time.Hour})
	if _, err := h.Take(order(1, 3)); err != nil {
		t.Fatal(err)
	}
	token, end, ok := h.Begin(3)
	if !ok || token != 1 {
		t.Fatalf("begin: have %d, %v", token, ok)
	}
	released := make(chan handoff.State, 1)
	go func() {
		s, err := h.Release(context.WithoutCancel(t.Context()), order(2, 3))
		if err != nil {
			t.Error(err)
		}
		released <- s
	}()
	for h.State().Version != 2 {
		time.Sleep(time.Millisecond) // until the order has come; the test's own time bounds it
	}
	if _, _, ok := h.Begin(3); ok {
		t.Error("a request began while the partition was releasing")
	}
	if have := text(h.State()); have != "v2 3:releasing@2" {
		t.Errorf("have %s", have)
	}
	end()
	end() // which is allowed
	if have := text(<-released); have != "v2" {
		t.Errorf("after the last request: have %s, want nothing held", have)
	}
}

func TestReleaseAnswersThoughARequestLasts(t *testing.T) {
	t.Parallel()
	var dropped []int
	h := handoff.NewHolder(handoff.HolderOptions{
		Cluster: "fanout", Partitions: 8, Drain: time.Millisecond, Drop: func(p int) { dropped = append(dropped, p) },
	})
	if _, err := h.Take(order(1, 3)); err != nil {
		t.Fatal(err)
	}
	_, end, _ := h.Begin(3)
	s, err := h.Release(t.Context(), order(2, 3))
	if err != nil || text(s) != "v2 3:releasing@2" {
		t.Fatalf("have %s, %v", text(s), err)
	}
	// It may come back before that request ends.
	if s, err = h.Take(order(3, 3)); err != nil || text(s) != "v3 3:held@3" {
		t.Fatalf("have %s, %v", text(s), err)
	}
	if s, err = h.Release(t.Context(), order(4, 3)); err != nil || text(s) != "v4 3:releasing@4" {
		t.Fatalf("have %s, %v", text(s), err)
	}
	end()
	if have := text(h.State()); have != "v4" || fmt.Sprint(dropped) != "[3 3]" {
		t.Errorf("have %s, dropped %v", have, dropped)
	}
}

func TestWarmingEndsWhenThePartitionIsTaken(t *testing.T) {
	t.Parallel()
	loading := make(chan int)
	h := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 8, Load: func(ctx context.Context, p int) {
		loading <- p
		<-ctx.Done()
	}})
	s, err := h.Warm(order(1, 3))
	if err != nil || text(s) != "v1 3:warming@1" {
		t.Fatalf("have %s, %v", text(s), err)
	}
	<-loading
	if s, err = h.Take(order(2, 3)); err != nil || text(s) != "v2 3:held@2" {
		t.Fatalf("have %s, %v", text(s), err)
	}
	h.Close() // would hang if the load went on
}

func TestWhatIsAnnouncedAndDoesNotComeIsForgotten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	h := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 8, Forget: time.Minute, Now: func() time.Time { return now }})
	if _, err := h.Take(order(1, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Prepare(order(1, 3)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(61 * time.Second)
	if s, err := h.Release(t.Context(), order(1)); err != nil || text(s) != "v1 2:held@1" {
		t.Errorf("have %s, %v; want only what is held, which is kept without news", text(s), err)
	}
}
