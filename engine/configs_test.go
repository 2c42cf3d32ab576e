package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"procaas/engine/definitions"
	"procaas/engine/model"
	"procaas/engine/store"
)

const switched = `
configs: {SWITCH: {on: true}, LIMIT: 1}
pipelines:
  - id: work
    stages:
      - id: a
        handlers:
          - {id: one, critical: false, enabled: !$ configs.SWITCH.on, step: {value: !$ configs.LIMIT}}
`

func TestConfigHoldsOnAllNodesWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, _ := r.start(switched)
		second, stop := r.start(switched)
		run := r.submit(second, event("work", ""))
		r.settle(second, run, model.Succeeded)
		r.want("work/a/one")

		off := map[string]any{"on": false}
		v, err := first.SetConfig(context.Background(), "SWITCH", off, 0, store.Actor{Name: "me", Reason: "quiet"})
		if err != nil || v.Revision == 0 || v.By != "me" || v.Reason != "quiet" || v.Changed == nil {
			t.Fatalf("want the setting with who changed it, have %+v and %v", v, err)
		}
		pass(1100 * time.Millisecond)
		for range 4 {
			r.settle(second, r.submit(second, event("work", "")), model.Succeeded)
		}
		r.want("work/a/one")
		stop()
		third, _ := r.start(switched)
		r.settle(third, r.submit(third, event("work", "")), model.Succeeded)
		r.want("work/a/one")

		if _, err := first.SetConfig(context.Background(), "SWITCH", off, 0, store.Actor{}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("want a lost update refused, have %v", err)
		}
		all, err := first.Configs(context.Background())
		if err != nil || len(all) != 2 || all[0].Name != "LIMIT" || all[1].Default.(map[string]any)["on"] != true {
			t.Errorf("want both settings with their first values, have %+v and %v", all, err)
		}
	})
}

func TestConfigOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, switched)
	for _, c := range []struct {
		name  string
		value any
		code  string
		says  string
	}{
		{"SWITCH", true, "invalid_config", "config SWITCH: want an object as declared, have a boolean"},
		{"SWITCH", map[string]any{"on": "yes"}, "invalid_config", "config SWITCH.on: want a boolean as declared, have a string"},
		{"LIMIT", "1", "invalid_config", "config LIMIT: want a number as declared, have a string"},
		{"LIMIT", nil, "invalid_config", "config LIMIT: want a number as declared, have null"},
		{"SWICH", nil, "unknown_config", "config SWICH is not declared; did you mean SWITCH?"},
	} {
		_, err := e.SetConfig(context.Background(), c.name, c.value, -1, store.Actor{Name: "me"})
		var refused *definitions.ConfigError
		if !errors.As(err, &refused) || refused.Code != c.code || refused.Message != c.says {
			t.Errorf("%s = %v: want %s: %s, have %v", c.name, c.value, c.code, c.says, err)
		}
	}
	for _, want := range []any{2.5, 2.0, 2} {
		v, err := e.SetConfig(context.Background(), "LIMIT", want, -1, store.Actor{})
		if err != nil || v.Value != want {
			t.Errorf("want any number taken and kept as %#v, have %#v, %v", want, v.Value, err)
		}
	}
}
