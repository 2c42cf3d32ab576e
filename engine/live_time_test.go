package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/engine/store"
)

const patient = `
configs: {PATIENCE: {run: 1m, stage: 30s, handler: 2s, attempt: 1s}}
pipelines:
  - id: work
    deadline: !$ configs.PATIENCE.run
    stages:
      - id: a
        deadline: !$ configs.PATIENCE.stage
        handlers:
          - id: one
            deadline: !$ configs.PATIENCE.handler
            timeout: !$ configs.PATIENCE.attempt
            retry: {attempts: 100, min-delay: 100ms, max-delay: 100ms, factor: 1, jitter: 0}
            step: {}
`

// Operators change deadlines and timeouts of runs, also of those under way.
func TestTimesFollowTheSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, run, stage, handler, attempt string
		took                               time.Duration
		want                               string
	}{
		{"files", "", "", "", "", 2 * time.Second, "the deadline of handler work/a/one, 2s"},
		{"handler", "1m", "30s", "5s", "1s", 5 * time.Second, "the deadline of handler work/a/one, 5s"},
		{"stage", "1m", "7s", "1h", "1s", 7 * time.Second, "the deadline of stage work/a, 7s"},
		{"run", "9s", "1h", "1h", "1s", 9 * time.Second, "the deadline of pipeline work, 9s"},
	} {
		r := newVirtualRig(t, patient)
		var timeouts []time.Duration
		r.on("one", func(ctx context.Context, c *engine.Call, _ any) (model.Result, error) {
			timeouts = append(timeouts, c.Timeout)
			return model.Result{}, clock.Sleep(ctx, time.Hour)
		})
		if c.run != "" {
			value := map[string]any{"run": c.run, "stage": c.stage, "handler": c.handler, "attempt": c.attempt}
			if _, err := r.v.Engine().SetConfig(t.Context(), "PATIENCE", value, -1, store.Actor{Name: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		v := r.send(event("work", "k"))
		if took := r.clock.Now().Sub(r.began); took != c.took || !strings.Contains(v.Error, c.want) {
			t.Errorf("%s: want %q after %s, have %q after %s", c.name, c.want, c.took, v.Error, took)
		}
		if len(timeouts) == 0 || timeouts[0] != time.Second {
			t.Errorf("%s: want attempts of a second, have %v", c.name, timeouts)
		}
	}
}

func TestTimesOfRunsUnderWayFollowTheSettings(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, patient)
	calls := 0
	r.on("one", func(ctx context.Context, _ *engine.Call, _ any) (model.Result, error) {
		if calls++; calls == 1 {
			value := map[string]any{"run": "1m", "stage": "30s", "handler": "4s", "attempt": "500ms"}
			if _, err := r.v.Engine().SetConfig(t.Context(), "PATIENCE", value, -1, store.Actor{Name: "ann"}); err != nil {
				t.Error(err)
			}
		}
		return model.Result{}, clock.Sleep(ctx, time.Hour)
	})
	v := r.send(event("work", "k"))
	if took := r.clock.Now().Sub(r.began); took != 4*time.Second || !strings.Contains(v.Error, "work/a/one, 4s") {
		t.Errorf("want the new deadline of 4s, have %q after %s", v.Error, took)
	}
	if calls < 6 {
		t.Errorf("want attempts of half a second after the change, have %d calls", calls)
	}
}

// A setting that leads to no duration changes nothing, and the error says where a duration is needed.
func TestSettingsThatLeadToNoTimeAreRefused(t *testing.T) {
	t.Parallel()
	r := newVirtualRig(t, patient)
	for handler, want := range map[any]string{
		"soon": `config PATIENCE: deadline of work/a/one at`, "0s": "want 1ms or more", 300: "want a string as declared, have a number",
	} {
		value := map[string]any{"run": "1m", "stage": "30s", "handler": handler, "attempt": "1s"}
		if _, err := r.v.Engine().SetConfig(t.Context(), "PATIENCE", value, -1, store.Actor{Name: "ann"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, have %v", handler, want, err)
		}
	}
}
