package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"procaas/dsl/diag"
)

// mostShown bounds the differences after a cause that the text shows.
const mostShown = 8

// Text formats the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	for _, c := range r.Causes {
		fmt.Fprintf(&b, "%s: %s", Count(c.Runs), c.Difference)
		if c.Span.File != "" {
			fmt.Fprintf(&b, "  %s:%d", c.Span.File, c.Span.Start.Line)
		}
		fmt.Fprintf(&b, "\n  was  %s\n  now  %s\n", c.Was, c.Now)
		for i, f := range c.Then {
			if i == mostShown {
				fmt.Fprintf(&b, "  then %d more differences; --format json lists all\n", len(c.Then)-i)
				break
			}
			fmt.Fprintf(&b, "  then %s, in %s: %s → %s\n", f.Difference, Count(f.Runs), f.Was, f.Now)
		}
		fmt.Fprintf(&b, "  such as %s\n\n", strings.Join(c.IDs, ", "))
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(&b, "not compared: %s: %s\n  such as %s\n", Count(l.Runs), l.Why, strings.Join(l.IDs, ", "))
	}
	if r.Live > 0 {
		fmt.Fprintf(&b, "%s for real\n", diag.Plural(r.Live, "call"))
	}
	fmt.Fprintf(&b, "%s replayed in %s: %d as before, %d different, %d not compared\n", Count(r.Runs), r.Took.Round(time.Millisecond),
		r.Same, r.Differ, r.Runs-r.Compared())
	return b.String()
}

// Count formats a number of runs.
func Count(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}

// String describes the difference without the values.
func (d Difference) String() string {
	switch d.Kind {
	case KindRoute:
		return "another pipeline serves the event"
	case KindNoReply:
		return d.Path + " makes a call that was not recorded"
	case KindAdded:
		return d.Path + " is called, too"
	case KindRemoved:
		return d.Path + " is not called any more"
	case KindService:
		return d.Path + " calls another address"
	case KindRequest:
		return d.Path + " sends another " + d.At
	case KindTries:
		return d.Path + " makes another number of attempts"
	case KindOutcome:
		return d.Path + " has another outcome"
	case KindEvent:
		return d.Path + " emits another " + d.At
	case KindStatus:
		return d.Path + " ends differently"
	case KindResult:
		return d.Path + " comes to another " + d.At
	case KindSlower:
		return d.Path + " takes longer"
	}
	return d.Path + ": " + d.Kind
}

// The JSON form is a contract with other programs: never change names.
type (
	jsonReport struct {
		Runs        int           `json:"runs"`
		Same        int           `json:"same"`
		Different   int           `json:"different"`
		NotCompared int           `json:"not_compared"`
		LiveCalls   int           `json:"live_calls"`
		Versions    int           `json:"versions"`
		Seconds     float64       `json:"seconds"`
		Causes      []jsonCause   `json:"causes"`
		LeftOut     []jsonLeftOut `json:"left_out"`
	}
	jsonDifference struct {
		Runs int    `json:"runs"`
		Kind string `json:"kind"`
		Path string `json:"path"`
		At   string `json:"at"`
		Was  string `json:"was"`
		Now  string `json:"now"`
	}
	jsonCause struct {
		jsonDifference
		Pipeline string           `json:"pipeline"`
		File     string           `json:"file"`
		Line     int              `json:"line"`
		Examples []string         `json:"examples"`
		Then     []jsonDifference `json:"then"`
	}
	jsonLeftOut struct {
		Runs     int      `json:"runs"`
		Why      string   `json:"why"`
		Examples []string `json:"examples"`
	}
)

func jsonOf(d Difference, runs int) jsonDifference {
	return jsonDifference{runs, strings.ReplaceAll(d.Kind, " ", "_"), d.Path, d.At, d.Was, d.Now}
}

// JSON writes the report as JSON.
func (r *Report) JSON(w io.Writer) error {
	out := jsonReport{
		Runs: r.Runs, Same: r.Same, Different: r.Differ, NotCompared: r.Runs - r.Compared(), LiveCalls: r.Live, Versions: r.Versions,
		Seconds: r.Took.Seconds(), Causes: []jsonCause{}, LeftOut: []jsonLeftOut{},
	}
	for _, c := range r.Causes {
		cause := jsonCause{jsonOf(c.Difference, c.Runs), c.Pipeline, c.Span.File, c.Span.Start.Line, c.IDs, []jsonDifference{}}
		for _, f := range c.Then {
			cause.Then = append(cause.Then, jsonOf(f.Difference, f.Runs))
		}
		out.Causes = append(out.Causes, cause)
	}
	for _, l := range r.LeftOut {
		out.LeftOut = append(out.LeftOut, jsonLeftOut{l.Runs, l.Why, l.IDs})
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
