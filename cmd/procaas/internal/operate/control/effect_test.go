package control

import (
	"slices"
	"testing"

	"procaas/engine/guard"
	"procaas/engine/steering"
)

// A limit below the traffic makes calls wait longer and longer, and people learn by how much.
func TestLimitBelowTheTrafficIsTold(t *testing.T) {
	t.Parallel()
	late := func(longer string) []string {
		return []string{"more calls come than may start, so with each minute they wait " + longer + " longer; deadlines stand still meanwhile"}
	}
	for _, c := range []struct {
		control guard.Control
		want    []string
	}{
		{guard.Control{RateLimit: "10/s"}, late("1m0s")},
		{guard.Control{RateLimit: "60/m"}, late("19m0s")},
		{guard.Control{RateLimit: "10/s", Over: "skip"}, nil},
		{guard.Control{RateLimit: "20/s"}, nil},
		{guard.Control{}, nil},
	} {
		if have := tooMany(&steering.ControlEffect{Control: c.control, CallsPerS: 20}); !slices.Equal(have, c.want) {
			t.Errorf("%s: have %q, want %q", c.control.RateLimit, have, c.want)
		}
	}
}
