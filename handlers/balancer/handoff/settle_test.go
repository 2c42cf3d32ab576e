package handoff_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"procaas/handlers/balancer/handoff"
)

var errLost = errors.New("lost")

// workers are holders that are reached without a network.
type workers struct {
	partitions int
	holders    []*handoff.Holder
	away       []bool

	// deliver decides about one call: it may lose the order, or the answer to it, and do
	// anything meanwhile.
	deliver func() (order, answer bool)
}

func newWorkers(n, partitions int) *workers {
	w := &workers{partitions: partitions, away: make([]bool, n), deliver: func() (bool, bool) { return true, true }}
	for i := range n {
		w.holders = append(w.holders, nil)
		w.restart(i, 0)
	}
	return w
}

func (w *workers) restart(i int, heard int64) {
	w.holders[i] = handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: w.partitions, Heard: heard})
}

// RoundTrip implements [http.RoundTripper].
func (w *workers) RoundTrip(r *http.Request) (*http.Response, error) {
	var i int
	if _, err := fmt.Sscanf(r.URL.Host, "w%d", &i); err != nil {
		return nil, err
	}
	order, answer := w.deliver()
	if w.away[i] || !order {
		return nil, errLost
	}
	rec := httptest.NewRecorder()
	w.holders[i].Routes().ServeHTTP(rec, r)
	if !answer {
		return nil, errLost
	}
	return rec.Result(), nil
}

func (w *workers) settler() handoff.Settler {
	return handoff.Settler{Caller: handoff.Caller{HTTP: &http.Client{Transport: w}}, Timeout: time.Minute, Grace: time.Second, AtOnce: 1}
}

func (w *workers) assignment(version int64, owner ...int) handoff.Map {
	m := handoff.Map{Cluster: "fanout", Version: version, Owner: owner, Since: make([]int64, len(owner))}
	for i := range w.holders {
		m.Workers = append(m.Workers, handoff.Worker{ID: fmt.Sprint("w", i), URL: fmt.Sprintf("http://w%d", i)})
	}
	return m
}

// holding lists the workers that hold each partition.
func (w *workers) holding() [][]int {
	all := make([][]int, w.partitions)
	for i, h := range w.holders {
		for _, p := range h.State().Partitions {
			if p.Phase == handoff.Held {
				all[p.Partition] = append(all[p.Partition], i)
			}
		}
	}
	return all
}

func TestSettleBringsWorkersToTheAssignment(t *testing.T) {
	t.Parallel()
	w := newWorkers(3, 4)
	first, err := w.settler().Settle(t.Context(), w.assignment(1, 0, 0, 1, -1))
	if err != nil || first.Held != 3 || first.Taken != 3 {
		t.Fatalf("have %+v, %v", first, err)
	}
	second, err := w.settler().Settle(t.Context(), w.assignment(2, 2, 0, 1, -1))
	if err != nil || second.Released != 1 || second.Taken != 1 || second.Held != 3 {
		t.Fatalf("have %+v, %v", second, err)
	}
	if have := fmt.Sprint(w.holding()); have != "[[2] [0] [1] []]" {
		t.Errorf("have %s", have)
	}
	if _, err := w.settler().Settle(t.Context(), w.assignment(1, 0, 0, 1, -1)); !errors.As(err, new(*handoff.OutdatedError)) {
		t.Errorf("by an older assignment: have %v, want a refusal", err)
	}
	if have := fmt.Sprint(w.holding()); have != "[[2] [0] [1] []]" {
		t.Errorf("the older assignment has changed something: have %s", have)
	}
}

func TestSettleGivesAWorkerThatStartedAnewWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorkers(2, 2)
	if _, err := w.settler().Settle(t.Context(), w.assignment(1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	w.restart(1, 0)
	s, err := w.settler().Settle(t.Context(), w.assignment(1, 0, 1))
	if err != nil || s.Taken != 1 || s.Held != 2 {
		t.Errorf("have %+v, %v", s, err)
	}
}

// A worker in another language may list its partitions in any order, and may be wrong.
func TestSettleReadsAnswersOfAnyWorker(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		answer string
		held   int
		silent string
	}{
		{`{"cluster": "fanout", "version": 1, "partitions": [
			{"partition": 2, "phase": "held", "version": 1}, {"partition": 0, "phase": "held", "version": 1},
			{"partition": 1, "phase": "held", "version": 1}]}`, 3, "[]"},
		{`{"cluster": "fanout", "version": 1, "partitions": [{"partition": -1, "phase": "held", "version": 1}]}`, 0, "[w0]"},
	} {
		worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.answer) }))
		defer worker.Close()
		s := handoff.Settler{Caller: handoff.Caller{HTTP: worker.Client()}, Timeout: time.Minute}
		m := handoff.Map{Cluster: "fanout", Version: 1, Workers: []handoff.Worker{{ID: "w0", URL: worker.URL}}, Owner: []int{0, 0, 0}}
		have, err := s.Settle(t.Context(), m)
		if err != nil || have.Held != tc.held || have.Taken != 0 || fmt.Sprint(have.Silent) != tc.silent {
			t.Errorf("answer %s: have %+v, %v; want %d held, none taken and %s silent", tc.answer, have, err, tc.held, tc.silent)
		}
	}
}

func TestSettleWaitsForASilentWorker(t *testing.T) {
	t.Parallel()
	w := newWorkers(3, 2)
	if _, err := w.settler().Settle(t.Context(), w.assignment(1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	w.away[0] = true
	moved := w.assignment(2, 2, 1)
	moved.Lost = []handoff.Loss{{Partition: 0, Worker: 0, Age: 999 * time.Millisecond}}
	s, err := w.settler().Settle(t.Context(), moved)
	if err != nil || fmt.Sprint(s.Waiting, s.Silent) != "[0] [w0]" {
		t.Fatalf("before the grace is over: have %+v, %v", s, err)
	}
	moved.Lost[0].Age = time.Second
	if s, err = w.settler().Settle(t.Context(), moved); err != nil || s.Taken != 1 || len(s.Waiting) != 0 {
		t.Fatalf("after it: have %+v, %v", s, err)
	}
	w.away[0] = false // it still holds what it had, and loses it as soon as it is heard of
	if s, err = w.settler().Settle(t.Context(), moved); err != nil || s.Released != 1 {
		t.Fatalf("when it is back: have %+v, %v", s, err)
	}
	if have := fmt.Sprint(w.holding()); have != "[[2] [1]]" {
		t.Errorf("have %s", have)
	}
}

// A worker at whose address nothing listens has ended: what it had goes to others sooner than
// what one has that is only silent.
func TestSettleWaitsLessForAWorkerThatHasEnded(t *testing.T) {
	t.Parallel()
	holder := handoff.NewHolder(handoff.HolderOptions{Cluster: "fanout", Partitions: 1})
	owner := httptest.NewServer(holder.Routes())
	defer owner.Close()
	s := handoff.Settler{Caller: handoff.Caller{HTTP: owner.Client()}, Timeout: time.Minute, Grace: handoff.DefaultGrace}
	m := handoff.Map{
		Cluster: "fanout", Version: 2, Owner: []int{1}, Workers: []handoff.Worker{{ID: "w0", URL: "http://127.0.0.1:1"}, {ID: "w1", URL: owner.URL}},
		Lost: []handoff.Loss{{Partition: 0, Worker: 0, Age: 1400 * time.Millisecond}},
	}
	if have, err := s.Settle(t.Context(), m); err != nil || fmt.Sprint(have.Waiting, have.Silent) != "[0] [w0]" {
		t.Fatalf("when it has just ended: have %+v, %v", have, err)
	}
	m.Lost[0].Age = 1500 * time.Millisecond
	if have, err := s.Settle(t.Context(), m); err != nil || have.Taken != 1 {
		t.Fatalf("a moment later: have %+v, %v", have, err)
	}
}

// TestSettleRenewsWhatIsOutdated lets a partition go to another worker and come back while
// the first one hears nothing: what that still holds is older than what the other did.
func TestSettleRenewsWhatIsOutdated(t *testing.T) {
	t.Parallel()
	w := newWorkers(2, 1)
	step := func(owner int, since int64) {
		m := w.assignment(since, owner)
		m.Since[0] = since
		if _, err := w.settler().Settle(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	step(0, 1)
	w.away[0] = true
	step(1, 2)
	w.away[0] = false
	step(0, 3)
	if have := text(w.holders[0].State()) + ", " + text(w.holders[1].State()); have != "v3 0:held@3, v3" {
		t.Errorf("have %s", have)
	}
}

func TestPrepareIsNoMove(t *testing.T) {
	t.Parallel()
	w := newWorkers(2, 2)
	now := w.assignment(1, 0, 0)
	if _, err := w.settler().Settle(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	done, err := w.settler().Prepare(t.Context(), now, []handoff.Move{{Partition: 1, To: 1}}, time.Minute)
	if err != nil || done.Warm != 1 {
		t.Fatalf("have %+v, %v", done, err)
	}
	// Nobody moves it: it stays announced by this assignment, and goes by the next.
	if _, err := w.settler().Settle(t.Context(), now); err != nil || text(w.holders[1].State()) != "v1 1:warm@1" {
		t.Errorf("have %s, %v; want it still announced", text(w.holders[1].State()), err)
	}
	if _, err := w.settler().Settle(t.Context(), w.assignment(2, 0, 0)); err != nil || text(w.holders[1].State()) != "v2" {
		t.Errorf("have %s, %v; want nothing announced any more", text(w.holders[1].State()), err)
	}
	w.away[1] = true
	done, err = w.settler().Prepare(t.Context(), w.assignment(2, 0, 0), []handoff.Move{{Partition: 1, To: 1}}, time.Minute)
	if err != nil || fmt.Sprint(done.Cold, done.Silent) != "[1] [w1]" {
		t.Errorf("with a silent worker: have %+v, %v", done, err)
	}
}

// TestNoPartitionHasTwoWorkers lets orders and answers get lost, workers start anew, and
// balancers be overtaken in the middle by others with newer assignments. While no grace is
// over, a partition is never held twice; when all is well again, one round, and a second for
// what was releasing, brings every partition to its owner.
func TestNoPartitionHasTwoWorkers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, partitions := rapid.IntRange(1, 4).Draw(t, "workers"), rapid.IntRange(1, 5).Draw(t, "partitions")
		w := newWorkers(n, partitions)
		stored := w.assignment(1, make([]int, partitions)...)
		check := func() {
			for p, by := range w.holding() {
				if len(by) > 1 {
					t.Fatalf("partition %d is held by the workers %v", p, by)
				}
			}
		}
		commit := func() {
			owner := make([]int, partitions)
			for p := range owner {
				owner[p] = rapid.IntRange(-1, n-1).Draw(t, "owner")
			}
			lost := stored.Lost
			for p, before := range stored.Owner {
				if before >= 0 && before != owner[p] {
					lost = append(slices.Clone(lost), handoff.Loss{Partition: p, Worker: before})
				}
			}
			before := stored
			stored = w.assignment(stored.Version+1, owner...)
			stored.Lost = lost
			for p := range owner {
				if stored.Since[p] = before.Since[p]; owner[p] != before.Owner[p] {
					stored.Since[p] = stored.Version
				}
			}
		}
		depth := 0
		var settle func()
		w.deliver = func() (bool, bool) {
			check()
			switch rapid.IntRange(0, 11).Draw(t, "fate") {
			case 0:
				return false, false
			case 1:
				return true, false
			case 2: // another balancer overtakes this one
				if depth < 3 {
					commit()
					settle()
				}
			case 3:
				w.restart(rapid.IntRange(0, n-1).Draw(t, "restarted"), stored.Version)
			}
			return true, true
		}
		settle = func() {
			depth++
			defer func() { depth-- }()
			_, err := w.settler().Settle(context.Background(), stored)
			if err != nil && !errors.As(err, new(*handoff.OutdatedError)) {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			commit()
			settle()
			check()
		}
		w.deliver = func() (bool, bool) { return true, true }
		settle()
		for p, by := range w.holding() {
			if want := stored.Owner[p]; want < 0 && len(by) != 0 || want >= 0 && fmt.Sprint(by) != fmt.Sprint([]int{want}) {
				t.Fatalf("partition %d is held by %v, want %d", p, by, want)
			}
			if len(by) == 1 {
				for _, x := range w.holders[by[0]].State().Partitions {
					if x.Partition == p && x.Version < stored.Since[p] {
						t.Fatalf("partition %d is held since version %d, and came to its owner by version %d", p, x.Version, stored.Since[p])
					}
				}
			}
		}
	})
}
