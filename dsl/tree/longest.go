package tree

import (
	"math"
	"strings"
	"time"

	"procaas/dsl/datum"
)

// This file tells how long handlers may take at worst: by their timeouts, their policies of
// retries and their deadlines. What nobody can tell beforehand is left out: waits for limits, for a
// service that is down or asks for time, and for operators.

// SecondaryDeadline is the deadline of a request that is not critical and about whose time its
// author says nothing.
const SecondaryDeadline = 2 * time.Second

// A Longest is the longest time that something may take. The zero value is none at all.
type Longest struct {
	Time    time.Duration
	Endless bool // nothing bounds it; then Time means nothing
}

// endless is the time of what nothing bounds.
var endless = Longest{Endless: true}

// Within bounds a time by a deadline; 0 is none.
func (l Longest) Within(deadline time.Duration) Longest {
	if deadline > 0 && (l.Endless || deadline < l.Time) {
		return Longest{Time: deadline}
	}
	return l
}

// And adds what comes after.
func (l Longest) And(next Longest) Longest {
	if l.Endless || next.Endless {
		return endless
	}
	return Longest{Time: saturated(float64(l.Time) + float64(next.Time))}
}

// Or gives the longer of two times.
func (l Longest) Or(other Longest) Longest {
	if l.Endless || !other.Endless && l.Time >= other.Time {
		return l
	}
	return other
}

// Times repeats a time.
func (l Longest) Times(n int) Longest {
	if l.Endless {
		return l
	}
	return Longest{Time: saturated(float64(l.Time) * float64(n))}
}

// String shows the time for people, to the millisecond.
func (l Longest) String() string {
	if l.Endless {
		return "unbounded"
	}
	text := l.Time.Round(time.Millisecond).String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = strings.TrimSuffix(short+"m", "h0m")
		if text == short+"m" {
			return text
		}
		return text + "h"
	}
	return text
}

// saturated keeps a sum of durations one: the bounds of the language multiply to centuries.
func saturated(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// DefaultRetry is the policy of handlers that declare none.
func DefaultRetry() Retry {
	return Retry{
		Attempts: 3, MinDelay: 100 * time.Millisecond, MaxDelay: 15 * time.Minute, Factor: 2, Jitter: datum.Jitter{Share: 0.1},
		On: []string{"timeout", "connection", "5xx", "408", "425", "429"},
	}
}

// Longest is how long the delays between all attempts may take together, deviations by a share
// aside.
func (r Retry) Longest() Longest {
	if r.Attempts == 0 {
		return endless
	}
	factor := r.Factor
	if r.Jitter.Word == datum.DecorrelatedJitter {
		factor = 3
	}
	sum, delay, most := 0.0, float64(r.MinDelay), float64(r.MaxDelay)
	for left := r.Attempts - 1; left > 0; left-- {
		if delay >= most || factor <= 1 {
			return Longest{Time: saturated(sum + float64(left)*min(delay, most))}
		}
		sum += delay
		delay *= factor
	}
	return Longest{Time: saturated(sum)}
}

// AllAttempts is how long all attempts of the handler's call may take, the delays between them
// included, whatever the deadline is.
func (h *Handler) AllAttempts(t Type, b *Bundle) Longest {
	attempt := endless
	if t.Takes != nil {
		attempt = t.Takes(&Body{Handler: h, Value: h.Body, Bundle: b})
	}
	attempt = attempt.Within(h.Timeout)
	if attempt == (Longest{}) {
		return attempt
	}
	retry := DefaultRetry()
	if h.Retry != nil {
		retry = *h.Retry
	}
	if retry.Attempts == 0 {
		return endless
	}
	return attempt.Times(retry.Attempts).And(retry.Longest())
}

// Longest is how long the handler may take, with all its attempts and elements. Inside is how
// long the pipeline takes that it calls, or an element of a repeated stage, and parallel how many
// elements are worked on at once.
func (h *Handler) Longest(t Type, b *Bundle, inside Longest, parallel int) Longest {
	var one Longest
	switch {
	case h.Await != nil:
		one = Longest{Time: h.Await.Timeout}
	case h.Call != nil, h.Loops():
		one = inside
	case t.Name != "" && !t.SetsState:
		one = h.AllAttempts(t, b)
	}
	if h.ForEach != nil {
		n := h.ForEach.MaxItems
		if list, ok := h.ForEach.Items.Literal(); ok {
			items, _ := list.([]any)
			n = len(items)
		}
		one = one.Times((n + parallel - 1) / max(1, parallel))
	}
	return one.Within(h.DeadlineBy(t, b))
}

// DeadlineBy is the deadline of a handler of a type: its own, or that of requests that are not
// critical and whose author says nothing about time; 0 for none.
func (h *Handler) DeadlineBy(t Type, b *Bundle) time.Duration {
	says := h.Timeout > 0 || h.Body.Get("timeout") != nil || h.Retry != nil || h.RateLimit != nil || h.MaxInFlight > 0
	if h.Deadline > 0 || t.Name != RequestType || h.IsCritical() || h.ForEach != nil || says {
		return h.Deadline
	}
	id, _ := h.Body.Get("service").Literal()
	name, _ := id.(string)
	if s := b.Service(name); s != nil && s.Timeout > SecondaryDeadline && s.PlaceOf("timeout", s.Span) != s.Span {
		return 0 // its author wants it to have more time
	}
	return SecondaryDeadline
}
