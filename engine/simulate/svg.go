package simulate

import (
	"io"
	"time"
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
	c.Panels = []Panel{good, busy}
	return c.WriteSVG(w)
}
