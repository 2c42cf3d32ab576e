package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/model"
)

// TestLogsTellPathRunAndKey lets much go wrong, and looks at the keys of all that
// is logged: what is about a run has path, run and key, each once.
func TestLogsTellPathRunAndKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		tr := newSpanBook(t)
		store := &enginetest.Faulty{Store: r.store}
		e := r.engine(store.Ports(), `
flows: [{id: order, key: !$ event.payload.id}]
pipelines:
  - id: work
    flow: order
    stages:
      - id: a
        handlers:
          - {id: speaks, step: {}}
          - {id: weak, critical: false, step: {}, retry: {attempts: 2, on: [any]}}
          - {id: panics, critical: false, step: {}, retry: {attempts: 1}}
      - id: b
        handlers: [{id: fails, step: {}, retry: {attempts: 1}}]
`, tr.on, func(o *engine.Options) {
			o.Log = slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		r.on("speaks", func(_ context.Context, c *engine.Call, _ any) (model.Result, error) {
			c.Log.Info("handler speaks")
			return model.Result{}, nil
		})
		bad := func(context.Context, *engine.Call, any) (model.Result, error) {
			return model.Result{}, errors.New("no luck")
		}
		r.on("weak", bad)
		r.on("fails", bad)
		r.on("panics", func(context.Context, *engine.Call, any) (model.Result, error) { panic("on purpose") })
		failures := 0
		store.After = func(op string) error {
			if op == "commit" && failures < 2 {
				failures++
				return enginetest.ErrInjected
			}
			return nil
		}
		r.run(e)
		for _, key := range []string{"o-1", "o-2", "o-3"} {
			r.settle(e, r.submit(e, event("work", key)), model.Failed)
		}
		pass(time.Minute)

		want := map[string]string{ // and the path that it is about
			"handler speaks": "work/a/speaks", "attempt failed": "", "handler panicked": "work/a/panics",
			"handler failed for good": "", "run failed": "work/b/fails",
		}
		seen := map[string]bool{}
		lines := bufio.NewScanner(strings.NewReader(r.log.String()))
		for lines.Scan() {
			var have map[string]any
			if err := json.Unmarshal(lines.Bytes(), &have); err != nil {
				t.Fatal(err)
			}
			message, _ := have["msg"].(string)
			path, expected := want[message]
			for _, name := range []string{"path", "run", "key"} {
				if n := strings.Count(lines.Text(), `"`+name+`":`); n > 1 {
					t.Errorf("%s: want the key %s once, have it %d times", lines.Text(), name, n)
				}
				if _, ok := have[name]; !ok && (expected || have["run"] != nil) {
					t.Errorf("%s: want the key %s", lines.Text(), name)
				}
			}
			if expected && path != "" && have["path"] != path {
				t.Errorf("%s: want the path %s", lines.Text(), path)
			}
			if expected && have["trace_id"] == nil {
				t.Errorf("%s: want the trace, since there is one", lines.Text())
			}
			seen[message] = true
		}
		for message := range want {
			if !seen[message] {
				t.Errorf("want it logged: %s", message)
			}
		}
		if n := strings.Count(r.log.String(), "handler failed for good"); n != 2 {
			t.Errorf("want each of two handlers that gave up three times logged once, have %d lines", n)
		}
	})
}
