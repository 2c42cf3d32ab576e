package datum

import (
	"fmt"
	"strconv"
	"time"
)

// OneOf returns values as a list such as "a, b or c".
func OneOf(values []any) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = DescribeData(v)
	}
	return OrList(out)
}

// ElementIndex parses the index of an element. ok is false if name is not one.
func ElementIndex(name string) (int, bool) {
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0
}

// An Env has the roots that an expression may read: event, shared-state, sources, configs, flow, run, and item
// inside for-each. Values are nil, bool, int, float64, string, []any, map[string]any, [Secret] or a [Root].
type Env map[string]any

// A Root in an Env is a mapping that makes what an expression reads of it. Its values may be Roots, too.
type Root interface {
	Get(name string) any  // the value of a name; nil for none
	Data() map[string]any // all of it, without Roots; nobody changes it afterwards
}

// An Unknown in an Env replaces a value that is no longer known. Only [expr.Expr.Trace] accepts it. An
// expression that reads it has no value, and Why is the reason.
type Unknown struct{ Why string }

// Error implements error.
func (u Unknown) Error() string { return u.Why }

// A Kind is the type that a field requires. The zero Kind accepts any value.
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
	SecretKind   // !secret NAME, and no value of another form
	ListKind
	MapKind
	ObjectKind // a mapping whose fields a Spec describes
)

// A Secret is the value of !secret NAME: the name, never the secret itself. The engine resolves it when it
// makes the call.
type Secret struct {
	Name string

	// To is the id of the declared service, cluster or shard map that receives the value. The code that
	// resolves the secret sets it. Expressions leave it empty.
	To string
}

// MaxLevels is the maximum nesting of lists and mappings.
const MaxLevels = 64

// A Rate is a number of calls per unit of time.
type Rate struct {
	Count float64
	Per   time.Duration
}

// PerSecond returns the rate in calls per second, and 0 for the zero Rate.
func (r Rate) PerSecond() float64 {
	if r.Per == 0 {
		return 0
	}
	return r.Count / r.Per.Seconds()
}

// Text returns the rate in the syntax of the language.
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

// A Jitter is how far a delay may deviate: a share such as 0.1, or [FullJitter] or [DecorrelatedJitter].
type Jitter struct {
	Share float64
	Word  string // empty for a share
}

// Bytes is a size in bytes, written as 64KiB or 1MiB.
type Bytes int64
