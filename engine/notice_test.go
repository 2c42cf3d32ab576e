package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/fallback"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A noticeBoard keeps notices.
type noticeBoard struct {
	mu   sync.Mutex
	have []model.Notice
}

func (b *noticeBoard) add(n model.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have = append(b.have, n)
}

// lines returns what was noticed, for comparison, and forgets it.
func (b *noticeBoard) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, n := range b.have {
		out = append(out, fmt.Sprintf("%s %s owner=%s critical=%v key=%s: %s", n.Kind, n.Path, n.Owner, n.Critical, n.Key, n.Error))
	}
	b.have = nil
	return out
}

const noticed = `
flows:
  - id: order
    key: !$ event.payload.id
pipelines:
  - id: work
    flow: order
    owner: team-orders
    stages:
      - id: a
        handlers:
          - {id: bonus, owner: team-bonus, critical: false, step: {}, retry: {attempts: 1}}
          - {id: charge, step: {}, retry: {attempts: 1}}
  - id: loose
    when: !$ event.payload.id > 1
    stages:
      - {id: a, handlers: [{id: one, step: {}}]}
`

func TestNoticesTellWhatOwnersMustKnow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		broken := func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, errors.New("no luck")
		}
		r.on("bonus", broken)
		e, _ := r.start(noticed)

		r.settle(e, r.submit(e, event("work", "o-1")), model.Succeeded)
		want := []string{"handler-given-up work/a/bonus owner=team-bonus critical=false key=o-1: no luck"}
		if have := r.notices.lines(); !slices.Equal(have, want) {
			t.Errorf("a handler that is not critical gives up: want %q, have %q", want, have)
		}

		r.on("bonus", nil)
		r.on("charge", broken)
		failed := r.submit(e, event("work", "o-2"))
		r.settle(e, failed, model.Failed)
		want = []string{
			"run-failed work/a/charge owner=team-orders critical=true key=o-2: work/a/charge: attempt 1: no luck",
			"key-blocked work/a/charge owner=team-orders critical=true key=o-2: work/a/charge: attempt 1: no luck",
		}
		if have := r.notices.lines(); !slices.Equal(have, want) {
			t.Errorf("a critical handler gives up: want %q, have %q", want, have)
		}

		r.settle(e, r.submit(e, event("loose", "text")), model.Failed)
		have := r.notices.lines()
		if len(have) != 1 || !strings.HasPrefix(have[0], "run-failed loose owner= ") {
			t.Errorf("a condition fails before a pipeline begins: want a notice of the pipeline, have %q", have)
		}
		r.on("charge", nil)
		if _, err := e.Retry(t.Context(), failed, store.Actor{Name: "ann"}); err != nil {
			t.Fatal(err)
		}
		r.settle(e, failed, model.Succeeded)
		if have := r.notices.lines(); len(have) != 0 {
			t.Errorf("nothing goes wrong: want no notice, have %q", have)
		}
	})
}

func TestNoticeOfARunThatWaitsForAnOperator(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		e, run := diesInACall(r, "park", nil)
		r.settle(e, run, model.Parked)
		have := r.notices.lines()
		if len(have) != 2 || !strings.HasPrefix(have[0], "run-parked work/a/pay") || !strings.HasPrefix(have[1], "key-blocked work/a/pay") {
			t.Errorf("want that the run is parked and its key blocked, have %q", have)
		}
	})
}

func TestNoticeOfAFallbackComesFromOneNode(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var bonus sick
		r.on("bonus", bonus.do)
		first, _ := r.start(degradable)
		second, _ := r.start(degradable)
		stop := r.orders(200*time.Millisecond, first, second)
		pass(time.Minute)
		fallbacks := func() (out []string) {
			for _, line := range r.notices.lines() {
				if strings.HasPrefix(line, "fallback") {
					out = append(out, line[:len("fallback-off work/b/bonus")])
				}
			}
			return out
		}
		bonus.down.Store(true)
		waitFor(t, first, "work/b/bonus", fallback.Out, time.Minute)
		pass(2 * time.Second)
		if have := fallbacks(); len(have) != 1 || have[0] != "fallback-on work/b/bonus " {
			t.Errorf("want one notice that it is out, have %q", have)
		}
		bonus.down.Store(false)
		waitFor(t, first, "work/b/bonus", fallback.In, 5*time.Minute)
		pass(2 * time.Second)
		if have := fallbacks(); len(have) != 1 || have[0] != "fallback-off work/b/bonus" {
			t.Errorf("want one notice that it is back, have %q", have)
		}
		stop()
	})
}
