package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
	"procaas/engine/store"
)

// Whoever waits for a run gets what everybody reads of it afterwards, whichever node has run it
// and however it has ended.
func TestWhatAWaiterGetsIsWhatIsReadLater(t *testing.T) {
	t.Parallel()
	const flows = `
pipelines:
  - id: p
    outputs: {n: !$ sources.h.response, twice: !$ sources.h.response * 2}
    stages:
      - id: s
        handlers:
          - {id: h, step: {value: !$ event.payload.n}, retry: {attempts: 2, min-delay: 50ms}}
          - {id: nap, step: {value: !$ event.payload.nap}}
`
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				r := newRig(t)
				var mu sync.Mutex
				r.on("h", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					switch random.IntN(4) {
					case 0:
						return model.Result{}, model.Permanent(fmt.Errorf("refused"))
					case 1:
						return model.Result{}, fmt.Errorf("try again")
					case 2:
						return model.Result{Response: "no number"}, nil
					}
					return model.Result{Response: value}, nil
				})
				r.on("nap", func(_ context.Context, c *engine.Call, value any) (model.Result, error) {
					seconds, _ := value.(int)
					return model.Result{Until: c.Now.Add(time.Duration(seconds) * time.Second)}, nil
				})
				nodes := []*engine.Engine{}
				var stops []func() error
				for range 2 {
					e, stop := r.start(flows)
					nodes, stops = append(nodes, e), append(stops, stop)
				}
				runs := map[string]checkpoint.RunView{}
				var waiting sync.WaitGroup
				for i := range 10 {
					mu.Lock()
					at, from, nap := random.IntN(2), random.IntN(2), random.IntN(3)
					if seed%2 == 0 {
						from = 1 // the one that goes on
					}
					mu.Unlock()
					id := r.submit(nodes[at], model.Event{
						ID: fmt.Sprint("e", i), Type: "p", Payload: map[string]any{"n": i, "nap": nap},
					})
					waiting.Go(func() {
						await := nodes[from].AwaitRun
						if i%2 == 0 {
							await = nodes[from].AwaitEnd
						}
						v, err := await(context.Background(), id)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						runs[id] = v
					})
				}
				if seed%2 == 0 { // the other node finishes what this one has
					pass(time.Second)
					if err := stops[0](); err != nil {
						t.Error(err)
					}
				}
				waiting.Wait()
				for id, have := range runs {
					want := r.view(nodes[1], id)
					if have.Accepted.IsZero() { // only what the end has brought
						want = checkpoint.RunView{
							Status: want.Status, Outputs: want.Outputs, FailedPath: want.FailedPath, Error: want.Error,
							ErrorClass: want.ErrorClass, Reason: want.Reason,
						}
						have = checkpoint.RunView{
							Status: have.Status, Outputs: have.Outputs, FailedPath: have.FailedPath, Error: have.Error,
							ErrorClass: have.ErrorClass, Reason: have.Reason,
						}
					}
					if !reflect.DeepEqual(have, want) {
						t.Errorf("want %+v\nhave %+v", want, have)
					}
					if ok := have.Status == model.Succeeded; ok != (have.Outputs != nil) || !have.Status.Ended() {
						t.Errorf("%s with outputs %v: %s", have.Status, have.Outputs, have.Error)
					}
				}
			})
		})
	}
}

// Outputs are computed once: what a run does after its end changes nothing that was told.
func TestOutputsAreToldOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
pipelines:
  - id: p
    shared-state: {by: null}
    outputs: {by: !$ "shared-state.by ?? 'nobody'"}
    stages:
      - id: s
        handlers:
          - {id: who, critical: false, step: {value: ann}, result: {by: !$ sources.who.response}, retry: {attempts: 1}}
`)
		down := true
		r.on("who", func(_ context.Context, _ *engine.Call, value any) (model.Result, error) {
			if down {
				return model.Result{}, fmt.Errorf("down")
			}
			return model.Result{Response: value}, nil
		})
		run := r.submit(e, model.Event{ID: "e", Type: "p"})
		before := r.settle(e, run, model.Succeeded)
		down = false
		done, err := e.MakeUpAll(context.Background(), store.RunFilter{LeftOut: "p/s/who", Limit: 10}, store.Actor{Name: "ann"})
		if err != nil {
			t.Fatalf("%+v: %v", done, err)
		}
		pass(time.Second)
		after := r.settle(e, run, model.Succeeded)
		if after.SharedState["by"] != "ann" || !reflect.DeepEqual(after.Outputs, before.Outputs) || before.Outputs["by"] != "nobody" {
			t.Errorf("want the outputs as they were, have %v, %v, with the state %v", before.Outputs, after.Outputs, after.SharedState)
		}
	})
}

// A run is followed step by step, and its end is the last of them.
func TestFollowersSeeTheWayToTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, _ := r.start(`
pipelines:
  - id: p
    outputs: {n: 5}
    stages:
      - {id: a, handlers: [{id: a1, step: {}}]}
      - {id: b, handlers: [{id: b1, step: {}}]}
`)
		a, b := gate(make(chan struct{})), gate(make(chan struct{}))
		r.on("a1", a.do)
		r.on("b1", b.do)
		run := r.submit(e, model.Event{ID: "e", Type: "p"})
		p, err := e.FollowRun(context.Background(), run)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Leave()
		step := func() (stage int, ended bool) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			s, err := p.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ended = s.Ended; ended != (s.Run.Outputs != nil) {
				t.Errorf("ended is %v, and the outputs are %v", ended, s.Run.Outputs)
			}
			return s.Run.Stage, ended
		}
		step()
		close(a)
		for stage, _ := step(); stage < 2; stage, _ = step() {
			continue
		}
		close(b)
		for _, ended := step(); !ended; _, ended = step() {
			continue
		}
		if _, err := e.FollowRun(context.Background(), "nobody"); err == nil {
			t.Error("want an error for a run that does not exist")
		}
	})
}
