package simulate

import (
	"fmt"
	"io"
	"time"

	"procaas/dsl/tree"
)

// WriteSVG draws goodput and concurrency of all policies over time.
func (r Report) WriteSVG(w io.Writer) error {
	s := r.Scenario
	up, end := s.Before+s.Outage, s.Before+s.Outage+s.After
	good := Panel{Title: "goodput: answers in time, per second", Top: 1}
	busy := Panel{Title: "concurrency: requests under way, logarithmic", Top: 10, Logarithmic: true}
	c := Chart{Length: end, Ticks: []time.Duration{0, s.Before, up, end}, Shaded: []Span{{s.Before, up}}}
	for _, v := range r.Policies {
		var answers, requests []Dot
		for i, x := range v.Samples {
			at := time.Duration(i) * time.Second
			answers = append(answers, Dot{at, float64(x.Good)})
			requests = append(requests, Dot{at, float64(x.Concurrency)})
			good.Top, busy.Top = max(good.Top, float64(x.Good)), max(busy.Top, float64(x.Concurrency))
		}
		good.Lines, busy.Lines = append(good.Lines, answers), append(busy.Lines, requests)
		c.Legend = append(c.Legend, v.Policy+": "+v.outcome())
	}
	linear := Panel{Title: "delay before each repetition, seconds", Top: 1, Unit: "s"}
	logarithmic := Panel{Title: "the same, milliseconds, logarithmic", Top: 10, Unit: "ms", Logarithmic: true}
	for _, delays := range r.delays {
		var seconds, millis []Dot
		for i, d := range delays {
			at := end * time.Duration(i+1) / repetitions
			seconds, millis = append(seconds, Dot{at, d.Seconds()}), append(millis, Dot{at, 1000 * d.Seconds()})
			linear.Top, logarithmic.Top = max(linear.Top, d.Seconds()), max(logarithmic.Top, 1000*d.Seconds())
		}
		linear.Lines, logarithmic.Lines = append(linear.Lines, seconds), append(logarithmic.Lines, millis)
	}
	for i := range repetitions {
		linear.Marks = append(linear.Marks, Mark{end * time.Duration(i+1) / repetitions, fmt.Sprint(i + 1)})
	}
	logarithmic.Marks = linear.Marks
	c.Panels = []Panel{good, busy, linear, logarithmic}
	return c.WriteSVG(w)
}

// repetitions is how many delays are drawn.
const repetitions = 20

// delaysOf returns the delays of a request that nobody ever answers.
func delaysOf(s Scenario, policy tree.Retry) (delays []time.Duration) {
	w, last := newWorld(s), time.Duration(0)
	most := repetitions
	if policy.Attempts > 0 {
		most = min(most, policy.Attempts-1)
	}
	for i := range most {
		last = w.nextDelay(policy, i+1, last)
		delays = append(delays, last)
	}
	return delays
}
