package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/clock"
)

// A world is the service that tortured nodes call. It answers late, fails, and
// hangs up after it has done its work, and it writes everything down.
type world struct {
	server *httptest.Server

	mu     sync.Mutex // guards the following
	random *rand.Rand
	calls  []heardCall
	calm   bool // answers at once, and always
	mute   int  // the process that gets no answers
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1))}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	return w
}

// url is where one process reaches the world. So it is known who calls.
func (w *world) url(process int) string { return w.server.URL + "/" + strconv.Itoa(process) }

// heard returns what was heard so far.
func (w *world) heard() []heardCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]heardCall(nil), w.calls...)
}

// ignore lets all further calls of a process wait for ever.
func (w *world) ignore(process int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = process
}

func (w *world) isMute(process int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mute == process
}

func (w *world) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// ServeHTTP implements [http.Handler].
func (w *world) ServeHTTP(reply http.ResponseWriter, r *http.Request) {
	c := heardCall{
		start: time.Now(), run: r.Header.Get("X-Procaas-Run"), path: r.Header.Get("X-Procaas-Path"),
		token: r.Header.Get("Idempotency-Key"),
	}
	var body struct {
		Key      string
		N, Count int
	}
	process, _, _ := strings.Cut(r.URL.Path[1:], "/")
	node, err := strconv.Atoi(process)
	if err != nil || json.NewDecoder(r.Body).Decode(&body) != nil {
		http.Error(reply, "not a call of the torture test", http.StatusBadRequest)
		return
	}
	c.node, c.key, c.n, c.count = node, body.Key, body.N, body.Count
	place, latency, chance := w.begin(c)
	if w.isMute(node) {
		<-r.Context().Done()
		return
	}
	clock.Pause(context.WithoutCancel(r.Context()), latency) // a caller that has hung up is served, too
	switch {
	case chance < 0.04: // fails, and has done nothing
		reply.WriteHeader(http.StatusServiceUnavailable)
	case chance < 0.07: // has done it, and does not say so
		w.end(place, false)
		panic(http.ErrAbortHandler)
	default:
		w.end(place, true)
		reply.WriteHeader(http.StatusNoContent)
	}
}

func (w *world) begin(c heardCall) (place int, latency time.Duration, chance float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	if w.calm {
		return len(w.calls) - 1, 0, 1
	}
	latency = time.Duration(w.random.ExpFloat64() * float64(10*time.Millisecond))
	if w.random.IntN(20) == 0 {
		latency += time.Duration(w.random.IntN(400)) * time.Millisecond
	}
	return len(w.calls) - 1, latency, w.random.Float64()
}

// end notes the effect of a call.
func (w *world) end(place int, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[place].applied, w.calls[place].answered = time.Now(), answered
}
