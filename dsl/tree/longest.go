package tree

import (
	"math"
	"strings"
	"time"

	"procaas/dsl/datum"
)

// This file computes how long handlers may take at most: by their timeouts, retry policies and deadlines. It
// omits waits that nobody can predict: for limits, for services that are down or ask for a pause, and for
// operators.

// SecondaryDeadline is the default deadline of a request that is not critical.
const SecondaryDeadline = 2 * time.Second

// A Longest is the longest time that something may take. The zero value is no time.
type Longest struct {
	Time    time.Duration
	Endless bool // there is no limit; Time has no meaning then
}

// endless is a time without a limit.
var endless = Longest{Endless: true}

// Within limits a time by a deadline. 0 means no deadline.
func (l Longest) Within(deadline time.Duration) Longest {
	if deadline > 0 && (l.Endless || deadline < l.Time) {
		return Longest{Time: deadline}
	}
	return l
}

// And adds a time that follows.
func (l Longest) And(next Longest) Longest {
	if l.Endless || next.Endless {
		return endless
	}
	return Longest{Time: saturated(float64(l.Time) + float64(next.Time))}
}

// Or returns the longer of two times.
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

// String formats the time, rounded to milliseconds.
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

// saturated limits a sum of durations to the longest duration, since limits of the language multiply to
// centuries.
func saturated(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// DefaultRetry is the policy of handlers without retry.
func DefaultRetry() Retry {
	return Retry{
		Attempts: 3, MinDelay: 100 * time.Millisecond, MaxDelay: 15 * time.Minute, Factor: 2, Jitter: datum.Jitter{Share: 0.1},
		On: []string{"timeout", "connection", "credentials", "certificate", "5xx", "408", "425", "429"},
	}
}

// Longest returns how long all delays between attempts may take together, without jitter by a share.
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

// AllAttempts returns how long all attempts of the handler's call may take, with the delays between them and
// without the deadline.
func (h *Handler) AllAttempts(t Type, b *Bundle) Longest {
	attempt := endless
	if t.Takes != nil {
		attempt = t.Takes(&Body{Handler: h, Value: h.Body, Bundle: b})
	}
	attempt = attempt.Within(h.Timeout)
	if attempt == (Longest{}) || t.Waits {
		return attempt // nobody is called, so nothing is retried
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

// Longest returns how long the handler may take, with all attempts and elements. inside is the time of the
// called pipeline, or of an element of a repeated stage. parallel is the number of concurrent elements.
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

// DeadlineBy returns the deadline of a handler: its own, or the default one of requests that are not critical.
// It returns 0 if there is none.
func (h *Handler) DeadlineBy(t Type, b *Bundle) time.Duration {
	says := h.Timeout > 0 || h.Body.Get("timeout") != nil || h.Retry != nil || h.RateLimit != nil || h.MaxInFlight > 0
	if h.Deadline > 0 || t.Name != RequestType || h.IsCritical() || h.ForEach != nil || says {
		return h.Deadline
	}
	id, _ := h.Body.Get("service").Literal()
	name, _ := id.(string)
	if s := b.Service(name); s != nil && s.Timeout > SecondaryDeadline && s.PlaceOf("timeout", s.Span) != s.Span {
		return 0 // the author allows more time
	}
	return SecondaryDeadline
}
