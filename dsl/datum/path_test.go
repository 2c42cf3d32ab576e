package datum

import (
	"strings"
	"testing"
)

func TestPathsOverlapWhenOneIsAPrefix(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		p, q string
		want bool
	}{
		{"shared-state/order", "shared-state/order", true},
		{"shared-state/order", "shared-state/order/id", true},
		{"shared-state", "shared-state/order/id", true},
		{"shared-state/order/id", "shared-state/order/tariff", false},
		{"shared-state/order", "shared-state/orders", false},
		{"shared-state/order/*", "shared-state/order/id", true},
		{"shared-state/*/id", "shared-state/order/tariff", false},
		{"shared-state/order/*/id", "shared-state/order", true},
		{"sources/a", "shared-state/a", false},
	} {
		p, q := Path(strings.Split(test.p, "/")), Path(strings.Split(test.q, "/"))
		if p.Overlaps(q) != test.want || q.Overlaps(p) != test.want {
			t.Errorf("%s, %s: want %v, have %v and %v", p, q, test.want, p.Overlaps(q), q.Overlaps(p))
		}
		if p.Equal(q) != (test.p == test.q) {
			t.Errorf("%s, %s: equal is %v", p, q, p.Equal(q))
		}
	}
}
