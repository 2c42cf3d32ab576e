package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A witness hears from the workers of the torture test what they do, and tells them how
// to do it.
type witness struct {
	server *httptest.Server

	mu      sync.Mutex // guards the following
	random  *rand.Rand
	calm    bool
	doings  []doing
	jobs    map[int]int   // how often the job of a number was called
	crashed map[int64]int // how often a task has brought its worker down
}

// A begunTask is what a worker says when it begins.
type begunTask struct {
	ID      int64
	Epoch   int
	Type    string
	Key     string
	Payload taskBody
	Until   time.Time // by then the worker has to be heard of, by the clock of the database
}

// A fateOf says what happens to an attempt.
type fateOf struct {
	Place  int
	Fate   string // done, later, fail, snooze or crash
	Millis int
}

// An endedTask is what a worker says when it is about to report, and, with Lost, when it
// knows what came of it.
type endedTask struct {
	Place int
	Lost  bool
}

// A doing is one attempt of a task, in the times of the witness.
type doing struct {
	begunTask
	process      string
	begun, ended time.Time // ended is zero when the process died before
	accepted     bool      // the end was told, and it counted
}

func newWitness(t *testing.T, seed uint64) *witness {
	w := &witness{random: rand.New(rand.NewPCG(seed, 99)), jobs: map[int]int{}, crashed: map[int64]int{}}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

// url is where nodes reach it, for the pipeline of jobs.
func (w *witness) url(int) string { return w.server.URL + "/node" }

func (w *witness) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

func (w *witness) seen() ([]doing, map[int]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doings, w.jobs
}

// ServeHTTP implements [http.Handler].
func (w *witness) ServeHTTP(reply http.ResponseWriter, r *http.Request) {
	process, what, _ := strings.Cut(r.URL.Path[1:], "/")
	var (
		begun begunTask
		ended endedTask
		job   struct{ N []int }
		into  any
	)
	switch what {
	case "begin":
		into = &begun
	case "end", "told":
		into = &ended
	case "job":
		into = &job
	}
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(reply, err.Error(), http.StatusBadRequest)
		return
	}
	var answer any = struct{}{}
	status := http.StatusOK
	w.mu.Lock()
	switch what {
	case "begin":
		answer = w.begin(process, begun)
	case "end":
		w.doings[ended.Place].ended = time.Now()
	case "told":
		w.doings[ended.Place].accepted = w.doings[ended.Place].accepted || !ended.Lost
	case "job":
		for _, n := range job.N {
			w.jobs[n]++
		}
		if !w.calm && w.random.IntN(20) == 0 {
			status = http.StatusServiceUnavailable
		}
	}
	w.mu.Unlock()
	reply.Header().Set("Content-Type", "application/json")
	reply.WriteHeader(status)
	_ = json.NewEncoder(reply).Encode(answer) // a caller that has gone does not want it
}

// begin notes an attempt, and says what happens to it.
func (w *witness) begin(process string, b begunTask) fateOf {
	w.doings = append(w.doings, doing{begunTask: b, process: process, begun: time.Now()})
	f := fateOf{Place: len(w.doings) - 1, Fate: "done"}
	chance := w.random.Float64()
	switch {
	case b.Type == "fails":
		f.Fate = "fail"
	case w.crashed[b.ID] < b.Payload.Crashes:
		w.crashed[b.ID]++
		f.Fate = "crash"
	case w.calm:
		return f
	case chance < 0.03:
		f.Fate = "fail"
	case chance < 0.06:
		f.Fate = "snooze"
	case chance < 0.3:
		f.Fate = "later"
	}
	f.Millis = int(w.random.ExpFloat64() * 8)
	if w.random.IntN(60) == 0 {
		f.Millis += w.random.IntN(int(2 * handLease.Milliseconds()))
	}
	return f
}
