package datum

import (
	"fmt"
	"strconv"
	"time"
)

// OneOf lists values for people.
func OneOf(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = DescribeData(v)
	}
	return OrList(out)
}

// ElementIndex reads the position of an element.
func ElementIndex(name string) (int, bool) {
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0
}

// An Env holds the roots that an expression may read: event, shared-state,
// sources, configs, flow, run, and item inside for-each. Values in it are nil,
// bool, int, float64, string, []any, map[string]any and [Secret], nothing else.
type Env map[string]any

// An Unknown stands in an Env for a value that is not known any more. Only
// [expr.Expr.Trace] takes it: what reads it has no value, for this reason.
type Unknown struct{ Why string }

// Error implements error.
func (u Unknown) Error() string { return u.Why }

// A Kind is what a value must be. The zero Kind accepts anything.
type Kind int

// The kinds of values.
const (
	AnyKind Kind = iota
	BoolKind
	IntKind
	FloatKind
	StringKind
	DurationKind // 300ms, 5s, 1h30m, 7d
	TimeKind     // RFC 3339
	BytesKind    // 64KiB, 1MiB
	RateKind     // 100/s, 5/m
	JitterKind   // 0.1, full, decorrelated
	SchemaKind   // a JSON Schema: a mapping, true or false, a name or a file
	ListKind
	MapKind
	ObjectKind // a mapping whose fields a Spec describes
)

// A Secret is what !secret NAME evaluates to: the name, never the value. The
// driver resolves it when the call is made.
type Secret struct {
	Name string

	// To is the id of the declared service, cluster or shard map that is sent the value.
	// Whoever asks for the value sets it; expressions leave it empty.
	To string
}

// MaxLevels is how many lists and mappings may stand inside one another.
const MaxLevels = 64

// A Rate is a number of calls per unit of time.
type Rate struct {
	Count float64
	Per   time.Duration
}

// PerSecond returns the rate in calls per second; 0 for the zero Rate.
func (r Rate) PerSecond() float64 {
	if r.Per == 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// Text writes the rate as authors do.
func (r Rate) Text() string {
	unit := r.Per.String()
	switch r.Per {
	case time.Second:
		unit = "s"
	case time.Minute:
		unit = "m"
	case time.Hour:
		unit = "h"
	case 24 * time.Hour:
		unit = "d"
	}
	return fmt.Sprintf("%g/%s", r.Count, unit)
}

// A Jitter is how far a delay deviates, written as a share such as 0.1, or as one
// of the words [FullJitter] and [DecorrelatedJitter].
type Jitter struct {
	Share float64
	Word  string // empty for a share
}

// Bytes is a size, written such as 64KiB or 1MiB.
type Bytes int64
