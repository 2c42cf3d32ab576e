package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// A fakeEngine is what an alerter sees of an engine.
type fakeEngine struct {
	mu       sync.Mutex // guards the following
	sick     error
	runs     map[string]checkpoint.RunView
	asked    int
	storeOff bool
	away     string // the run whose cell of the inbox cannot be reached
}

func (*fakeEngine) Handler(string) (stats.HandlerInfo, bool) { return stats.HandlerInfo{}, false }
func (*fakeEngine) Handlers() []stats.HandlerInfo            { return nil }
func (*fakeEngine) Services() []guard.ServiceInfo            { return nil }
func (*fakeEngine) Backlog() stats.BacklogView               { return stats.BacklogView{} }
func (*fakeEngine) Late() []stats.LateRuns                   { return nil }
func (*fakeEngine) Canary() *canary.State                    { return nil }
func (*fakeEngine) Degraded() error                          { return nil }
func (*fakeEngine) Damaged() error                           { return nil }

func (e *fakeEngine) Healthy(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sick
}

func (e *fakeEngine) RunByID(_ context.Context, id string) (checkpoint.RunView, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if id == e.away {
		return checkpoint.RunView{}, fmt.Errorf("run %s: %w", id, store.ErrAway)
	}
	if v, ok := e.runs[id]; ok {
		return v, nil
	}
	return checkpoint.RunView{}, store.ErrNotFound
}

func (e *fakeEngine) List(_ context.Context, f store.RunFilter) (out []checkpoint.RunView, _ string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.storeOff {
		return nil, "", errors.New("store is away")
	}
	for _, v := range e.runs {
		if v.Status == f.Status {
			out = append(out, v)
		}
	}
	return out, "", nil
}

func (e *fakeEngine) Entity(_ context.Context, flow, key string) (checkpoint.EntityView, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, v := range e.runs {
		if v.Flow == flow && v.Key == key {
			return checkpoint.EntityView{BlockedBy: id}, nil
		}
	}
	return checkpoint.EntityView{}, store.ErrNotFound
}

func (e *fakeEngine) set(change func(*fakeEngine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// alerting runs an alerter that tells a fake webhook.
func alerting(t *testing.T, e *fakeEngine) (a *Alerter, told *fakeReceiver, stopping chan struct{}) {
	t.Helper()
	told, stopping = &fakeReceiver{}, make(chan struct{})
	a, err := New(Options{Webhooks: []string{"http://hook/"}, Server: "http://s", Node: "n1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a.senders[0].client = &http.Client{Transport: told}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx, stopping, e) }()
	t.Cleanup(func() { cancel(); <-done })
	return a, told, stopping
}

func TestSickNodeIsToldUnlessItStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{sick: errors.New("store is away")}
		_, told, stopping := alerting(t, e)
		time.Sleep(8 * time.Second)
		wantTaken(t, told) // it may just start
		time.Sleep(4 * time.Second)
		wantTaken(t, told, "+")
		e.set(func(e *fakeEngine) { e.sick = nil })
		time.Sleep(2 * time.Second)
		wantTaken(t, told, "-")
		close(stopping)
		e.set(func(e *fakeEngine) { e.sick = errors.New("node is no member") })
		time.Sleep(time.Minute)
		wantTaken(t, told)
	})
}

func TestNoticesBecomeAlertsWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{}
		a, told, _ := alerting(t, e)
		time.Sleep(time.Second)
		for i := range 100 {
			for _, path := range []string{"p/a/one", "p/a/two"} {
				a.Notice(model.Notice{Kind: model.NoticeRunFailed, Path: path, Run: fmt.Sprint(i)})
			}
		}
		time.Sleep(time.Second)
		have := told.taken()
		slices.Sort(have)
		if !slices.Equal(have, []string{"+p/a/one", "+p/a/two"}) {
			t.Errorf("want one alert for each path, have %q", have)
		}
		time.Sleep(quietAfter + 2*time.Second)
		have = told.taken()
		slices.Sort(have)
		if !slices.Equal(have, []string{"-p/a/one", "-p/a/two"}) {
			t.Errorf("want both over, have %q", have)
		}
	})
}

// What waits for an operator since before the process began is found, as soon as
// the store answers; its end, too.
func TestAlerterFindsWhatIsStuckAlready(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(time.Hour)
		e := &fakeEngine{storeOff: true, runs: map[string]checkpoint.RunView{
			"r-1": {ID: "r-1", Status: model.Failed, Flow: "order", Key: "o-1", FailedPath: "p/a/one"},
			"r-2": {
				ID: "r-2", Status: model.Parked, Flow: "work", Pipeline: "p",
				Handlers: []checkpoint.HandlerView{{Path: "p/a/two", Outcome: model.OutcomeUnknown}},
			},
			"r-3": {ID: "r-3", Status: model.Parked, Flow: "order", Key: "o-3", Due: &due, Pipeline: "p"},
		}}
		_, told, _ := alerting(t, e)
		time.Sleep(5 * time.Second)
		wantTaken(t, told)
		e.set(func(e *fakeEngine) { e.storeOff = false })
		time.Sleep(adoptAgain)
		have := told.taken()
		slices.Sort(have)
		if !slices.Equal(have, []string{"+p/a/one", "+p/a/two"}) {
			t.Errorf("want what is stuck, and not what waits for a time, have %q", have)
		}
		e.set(func(e *fakeEngine) {
			delete(e.runs, "r-1") // it has been cancelled, and forgotten
			v := e.runs["r-2"]
			v.Status = model.Running
			e.runs["r-2"] = v
		})
		time.Sleep(checkEvery + 3*time.Second)
		have = told.taken()
		slices.Sort(have)
		if !slices.Equal(have, []string{"-p/a/one", "-p/a/two"}) {
			t.Errorf("want both over, have %q", have)
		}
		e.set(func(e *fakeEngine) { e.asked = 0 })
		time.Sleep(time.Minute)
		if e.set(func(*fakeEngine) {}); e.asked != 0 {
			t.Errorf("want nobody asked any more, have %d questions", e.asked)
		}
	})
}

// A cell of the inbox that is away keeps only its own alerts from ending.
func TestRunThatCannotBeReachedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeEngine{away: "r-1", runs: map[string]checkpoint.RunView{
			"r-1": {ID: "r-1", Status: model.Failed, Flow: "order", Key: "o-1", FailedPath: "p/a/one"},
			"r-2": {ID: "r-2", Status: model.Failed, Flow: "order", Key: "o-2", FailedPath: "p/a/two"},
		}}
		_, told, _ := alerting(t, e)
		time.Sleep(3 * time.Second)
		if have := told.taken(); len(have) != 2 {
			t.Fatalf("want both told, have %q", have)
		}
		e.set(func(e *fakeEngine) { delete(e.runs, "r-2") })
		time.Sleep(2*checkEvery + 3*time.Second)
		if have := told.taken(); !slices.Equal(have, []string{"-p/a/two"}) {
			t.Errorf("want the end of the one that can be reached, have %q", have)
		}
	})
}
