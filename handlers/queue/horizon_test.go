package queue

import (
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
)

func at(rank, second int) place { return place{rank, time.Unix(int64(second), 0).UTC()} }

// start returns where a claim of the type begins to look now. The look goes on.
func (h *horizon) start(t string) (*look, place) {
	l := h.look([]string{t})
	return l, l.from[t]
}

func TestHorizon(t *testing.T) {
	t.Parallel()
	var h horizon
	h.listens(true)
	begins := func(want place) *look {
		t.Helper()
		l, have := h.start("t")
		if have != want {
			t.Errorf("want a look from %v on, have %v", want, have)
		}
		return l
	}
	first := begins(headOfQueue)
	h.types["t"].all = time.Now().Add(time.Hour) // no look at all from now on
	h.took(first, map[string]place{"t": at(0, 5)})
	h.types["t"].all = time.Now().Add(time.Hour)
	h.took(begins(at(0, 5)), nil) // what has found nothing changes nothing
	h.lower(map[string]place{"t": at(0, 7), "other": headOfQueue})
	h.took(begins(at(0, 5)), nil)
	h.lower(map[string]place{"t": at(0, 3)})
	l := begins(at(0, 3))
	h.lower(map[string]place{"t": at(-1, 9)}) // during the look
	h.lower(map[string]place{"t": at(0, 4)})
	h.took(l, map[string]place{"t": at(0, 8)})
	h.took(begins(at(-1, 9)), map[string]place{"t": at(0, 8)})

	a, b := begins(at(0, 8)), begins(at(0, 8))
	h.took(b, map[string]place{"t": at(0, 20)})
	h.failed(a)
	h.took(begins(headOfQueue), map[string]place{"t": at(0, 30)})
	h.types["t"].all = time.Now().Add(time.Hour)
	a, b = begins(at(0, 30)), begins(at(0, 30))
	h.failed(a)
	h.took(b, map[string]place{"t": at(0, 40)}) // it has passed what a had locked
	h.types["t"].all = time.Now().Add(time.Hour)
	h.took(begins(headOfQueue), map[string]place{"t": at(0, 50)})

	h.types["t"].all = time.Time{}
	h.took(begins(headOfQueue), nil)
	h.listens(false)
	h.took(begins(headOfQueue), map[string]place{"t": at(0, 60)})
	h.took(begins(headOfQueue), nil)
	if len(h.looking) != 0 {
		t.Errorf("want no look under way, have %d", len(h.looking))
	}
}

// What was missed is found soon by a look at all, though the last one took forever
// because somebody stood still, and though of a bounded type none was looked at.
func TestHorizonLooksAtAllSoon(t *testing.T) {
	t.Parallel()
	var h horizon
	h.listens(true)
	l, _ := h.start("t")
	l.began = l.began.Add(-time.Hour)
	h.took(l, map[string]place{"t": at(0, 5)})
	if latest := time.Now().Add(reachPauseMost); h.types["t"].all.After(latest) {
		t.Errorf("want a look at all by %v, have %v", latest, h.types["t"].all)
	}

	l, _ = h.start("bounded")
	h.took(l, map[string]place{"bounded": at(0, 5)})
	h.types["bounded"].all = time.Time{}
	for range 3 { // as many are taken as may be
		l, from := h.start("bounded")
		l.bounded = []string{"bounded"}
		if h.took(l, nil); from != headOfQueue {
			t.Errorf("want a look from the head on, as long as none was looked at, have %v", from)
		}
	}
	l, _ = h.start("bounded")
	l.bounded = []string{"bounded"}
	h.took(l, map[string]place{"bounded": at(0, 6)})
	if all := h.types["bounded"].all; !all.After(l.began) {
		t.Errorf("want the next look at all later, as this one has found some; have %v", all)
	}

	var late leases
	began := time.Now()
	late.looked(time.Time{}, began, began.Add(-time.Hour))
	if latest := time.Now().Add(leasesPauseMost); late.all.After(latest) {
		t.Errorf("want a look at all leases by %v, have %v", latest, late.all)
	}
}

// A worker over HTTP does not say that its tasks have no unique keys. Its claims start after the
// tasks that were taken before, all the same.
func TestReportsOfEndedTasksKeepTheHorizon(t *testing.T) {
	t.Parallel()
	s := opened(t)
	patience.Until(t, "hints to be heard", func() bool {
		s.horizon.mu.Lock()
		defer s.horizon.mu.Unlock()
		return s.horizon.hears
	})
	if _, err := s.Enqueue(t.Context(), nil, []Spec{{Type: "t"}, {Type: "t"}, {Type: "t"}}...); err != nil {
		t.Fatal(err)
	}
	var report Report
	for range 3 {
		claim := Claim{Worker: "w", Lease: time.Hour, Types: []Want{{Type: "t", Limit: 1}}}
		tasks, lost, err := s.ExchangeTasks(t.Context(), report, claim)
		if err != nil || len(tasks) != 1 || len(lost) > 0 {
			t.Fatalf("want a task, have %d, lost %v, %v", len(tasks), lost, err)
		}
		// The hints of the put name the same place, so it does not matter when they arrive.
		want := place{0, tasks[0].Deadline}
		s.horizon.mu.Lock()
		have := s.horizon.types["t"].from
		s.horizon.mu.Unlock()
		if have != want {
			t.Errorf("want the next look from %v on, have %v", want, have)
		}
		report = Report{Completed: []Ref{tasks[0].Ref()}}
	}
}

func TestHintsSayWhere(t *testing.T) {
	t.Parallel()
	from := map[string]place{"a": at(-5, 7), "b": headOfQueue}
	if have := decodeHint(encodeHint(from)); len(have) != 2 || have["a"] != from["a"] || have["b"].rank != headOfQueue.rank ||
		at(-1<<31, 0).before(have["b"]) {
		t.Errorf("want %v, have %v", from, have)
	}
	if have := decodeHint(`["a","b"]`); len(have) != 2 || have["a"] != headOfQueue {
		t.Errorf("want two types from their heads on, have %v", have)
	}
	for _, text := range []string{"", "[]", "nonsense", `{"t":1}`} {
		if have := decodeHint(text); len(have) != 0 {
			t.Errorf("%q: want a hint for all types, have %v", text, have)
		}
	}
	long := map[string]place{}
	for i := range 300 {
		long[string(make([]byte, 30))+string(rune('a'+i))] = headOfQueue
	}
	if have := encodeHint(long); have != "[]" {
		t.Errorf("want a long hint to be for all types, have %d bytes", len(have))
	}
}
