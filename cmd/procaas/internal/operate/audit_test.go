package operate

import (
	"slices"
	"testing"
)

func TestAuditTellsOldAndNewOfEachField(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	for _, c := range []struct {
		name          string
		before, after any
		want          []string
	}{
		{"set", nil, object{"enabled": false, "mode": "hold", "until": nil}, []string{"enabled: false", "mode: hold"}},
		{
			"changed",
			object{"enabled": true, "rate_limit": "10/s"},
			object{"enabled": false, "rate_limit": "10/s", "mode": "skip"},
			[]string{"enabled: true → false", "mode: skip"},
		},
		{"removed", object{"enabled": false, "mode": "hold"}, nil, []string{"enabled: false → removed", "mode: hold → removed"}},
		{
			"inside",
			object{"tariffs": object{"econom": 1.5, "vip": object{"rate": 2.0}}, "cities": []any{"a", "b"}},
			object{"tariffs": object{"econom": 1.5, "vip": object{"rate": 3.0}}, "cities": []any{"a"}},
			[]string{`cities: ["a","b"] → ["a"]`, "tariffs.vip.rate: 2 → 3"},
		},
		{"text", "open", "paused", []string{"open → paused"}},
		{"first text", nil, "paused", []string{"paused"}},
		{"empty text", "", " x", []string{`"" → " x"`}},
		{"nothing", nil, nil, nil},
	} {
		if have := changeLines(c.before, c.after); !slices.Equal(have, c.want) {
			t.Errorf("%s: want %q, have %q", c.name, c.want, have)
		}
	}
}
