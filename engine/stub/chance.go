package stub

import (
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"procaas/dsl/expr"
	"procaas/dsl/spec"
)

//go:embed chance.go
var chanceFiles embed.FS

// A latency is how long answers take: anything from Min to Max.
type latency struct {
	// Min is the shortest time.
	Min time.Duration `yaml:"min" required:"true" min:"0s"`

	// Max is the longest time.
	Max time.Duration `yaml:"max" required:"true" min:"0s"`
}

// parseLatency reads one duration, or min and max.
func parseLatency(v *expr.Value) (latency, error) {
	var l latency
	if v.IsNull() {
		return l, nil
	}
	data, ok := v.Literal()
	if !ok {
		return l, errors.New("latency takes no expressions")
	}
	if _, ok := data.(map[string]any); !ok {
		data = map[string]any{"min": data, "max": data}
	}
	if err := spec.Of(reflect.TypeFor[latency](), spec.Read(chanceFiles)).Decode(data, &l); err != nil {
		return l, fmt.Errorf("latency: %w", err)
	}
	if l.Max < l.Min {
		return l, fmt.Errorf("latency: max %s is shorter than min %s", l.Max, l.Min)
	}
	return l, nil
}

func (l latency) draw(r *rand.Rand) time.Duration {
	return l.Min + time.Duration(r.Float64()*float64(l.Max-l.Min))
}

// mix returns the seed of the i-th part, so that parts get different random numbers (SplitMix64).
func mix(seed uint64, i int) uint64 {
	z := seed + uint64(i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
