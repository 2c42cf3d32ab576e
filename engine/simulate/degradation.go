package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/fallback"
	"procaas/engine/model"
)

// A Trouble says how the calls of a handler fail over time.
type Trouble struct {
	Name   string
	Rate   float64 // calls per second
	Length time.Duration
	Spells []Spell
}

// A Spell is a period in which a share of the calls fails.
type Spell struct {
	From, To time.Duration
	Failing  float64
}

// Troubles are the cases that a fallback must handle. It must act on the first two, must not act on
// the next three, and the last is a borderline case.
func Troubles(rate float64) []Trouble {
	const s, m = time.Second, time.Minute
	one := func(name string, length, from, to time.Duration, failing float64) Trouble {
		return Trouble{name, rate, length, []Spell{{from, to, failing}}}
	}
	flap := Trouble{Name: "down 20s, up 20s, for 10m", Rate: rate, Length: 16 * m}
	for at := m; at < 11*m; at += 40 * s {
		flap.Spells = append(flap.Spells, Spell{at, at + 20*s, 1})
	}
	return []Trouble{
		one("down for 2m", 10*m, m, 3*m, 1),
		one("60% fail for 5m", 15*m, m, 6*m, 0.6),
		one("30% fail for 10m", 12*m, m, 11*m, 0.3),
		one("10% fail for 1h", 62*m, m, 61*m, 0.1),
		one("down for 2s", 5*m, m, m+2*s, 1),
		flap,
	}
}

// failing returns the share of calls that fail at a time.
func (t Trouble) failing(at time.Duration) float64 {
	for _, s := range t.Spells {
		if at >= s.From && at < s.To {
			return s.Failing
		}
	}
	return 0
}

// A Course is how a fallback reacted to a trouble.
type Course struct {
	Trouble string `json:"trouble"`

	OutAfter *float64 `json:"out_after_s"` // from the first failure until it was first turned off; nil for never
	// BackAfter is the time from the end of the trouble until all calls are made again. Nil if the
	// handler was on then.
	BackAfter *float64 `json:"back_after_s"`

	Runs int `json:"runs"`     // each with its own seed; all other numbers are from the first run
	Outs int `json:"out_runs"` // runs in which the handler was turned off

	Changes  int `json:"changes"`  // how often the handler was turned off or on
	Failures int `json:"failures"` // failed calls
	Spared   int `json:"spared"`   // skipped calls that would have failed
	Lost     int `json:"lost"`     // skipped calls that would have succeeded

	Phases []string `json:"-"` // at the end of each second; empty while on
}

// CheckRate returns an error for an invalid rate of calls.
func CheckRate(rate float64) error {
	if rate >= 0.01 && rate <= 1000 {
		return nil
	}
	return fmt.Errorf("want a rate from 0.01 to 1000 calls per second, have %g", rate)
}

// Degrade runs a handler with a fallback through a trouble.
func Degrade(t Trouble, f *tree.Fallback, seed uint64) Course {
	const path = "pipeline/stage/handler"
	w := watch{
		Trouble: t, rnd: rand.New(rand.NewPCG(seed, 0)), path: path, course: Course{Trouble: t.Name}, counts: fallback.Counts{},
		fallbacks: fallback.NewRules([]fallback.Watched{{Path: path, Service: "service", Fallback: f}}),
	}
	return w.run()
}

// A watch is one handler with a fallback.
type watch struct {
	Trouble
	rnd       *rand.Rand
	path      string
	fallbacks *fallback.Rules
	state     fallback.State
	counts    fallback.Counts
	course    Course
}

// begin returns the start of simulated time, a whole second.
func begin() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

func (w *watch) run() Course {
	next := w.gap()
	for second := time.Duration(0); second < w.Length; second += time.Second {
		tally := model.Tally{Path: w.path, Second: begin().Add(second).Unix()}
		for ; next < second+time.Second; next += w.gap() {
			w.call(next, &tally)
		}
		end := second + time.Second
		for _, c := range w.fallbacks.Decide(&w.state, w.counts, begin().Add(end), []model.Tally{tally}) {
			w.note(c, end)
		}
		phase := ""
		if len(w.state.Outages) > 0 {
			phase = w.state.Outages[0].Phase
		}
		w.course.Phases = append(w.course.Phases, phase)
	}
	return w.course
}

// gap returns the time between two calls.
func (w *watch) gap() time.Duration {
	return time.Duration(w.rnd.ExpFloat64() / w.Rate * float64(time.Second))
}

// call makes one call, if the fallback allows it.
func (w *watch) call(at time.Duration, t *model.Tally) {
	fails := w.rnd.Float64() < w.failing(at)
	admitted := w.state.Admit(w.path, begin().Add(at), w.rnd.Float64())
	if admitted == fallback.AdmitProbe && !w.state.TakeProbe(w.path, begin().Add(at)) {
		admitted = fallback.AdmitSkip
	}
	switch skip := admitted == fallback.AdmitSkip; {
	case skip && fails:
		w.course.Spared++
	case skip:
		w.course.Lost++
	case fails:
		w.course.Failures++
		t.Bad++
	default:
		t.Good++
	}
}

// note records a change.
func (w *watch) note(c fallback.Change, at time.Duration) {
	switch c.Kind {
	case fallback.Out:
		if w.course.Changes%2 == 0 {
			w.course.Changes++ // not if it was recovering
		}
		if w.course.OutAfter == nil {
			w.course.OutAfter = seconds(at - w.Spells[0].From)
		}
	case fallback.Back:
		w.course.Changes++
		if last := w.Spells[len(w.Spells)-1].To; at > last {
			w.course.BackAfter = seconds(at - last)
		}
	}
}

func seconds(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
