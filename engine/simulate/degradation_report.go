package simulate

import (
	"fmt"
	"io"
	"strings"

	"procaas/dsl/tree"
	"procaas/engine/fallback"
)

// A DegradationReport shows how a fallback reacts to all troubles.
type DegradationReport struct {
	Fallback string   `json:"fallback"`
	Rate     float64  `json:"calls_per_s"`
	Seed     uint64   `json:"seed"`
	Seeds    int      `json:"seeds"`
	Courses  []Course `json:"troubles"`

	troubles []Trouble
}

// Degradation runs a fallback through all troubles at a rate of calls, with a number of seeds.
func Degradation(name string, f *tree.Fallback, rate float64, seed uint64, seeds int) DegradationReport {
	r := DegradationReport{Fallback: name, Rate: rate, Seed: seed, Seeds: seeds, troubles: Troubles(rate)}
	for _, t := range r.troubles {
		c := Degrade(t, f, seed)
		for i := range seeds {
			c.Runs++
			if i == 0 && c.OutAfter != nil || i > 0 && Degrade(t, f, seed+uint64(i)).OutAfter != nil {
				c.Outs++
			}
		}
		r.Courses = append(r.Courses, c)
	}
	return r
}

// WriteText writes a report for people: a table, and a timeline.
func (r DegradationReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The fallback %s, with %g calls per second. Seed %d.\n\n", r.Fallback, r.Rate, r.Seed)
	fmt.Fprintf(&b, "%-26s  %9s  %10s  %7s  %8s  %16s\n", "", "out", "back", "", "failed", "skipped calls")
	fmt.Fprintf(&b, "%-26s  %9s  %10s  %7s  %8s  %7s  %7s\n", "trouble", "after", "after", "changes", "calls", "bad", "good")
	for _, c := range r.Courses {
		back := inSeconds(c.BackAfter)
		if c.OutAfter == nil {
			back = "-"
		}
		fmt.Fprintf(&b, "%-26s  %9s  %10s  %7d  %8d  %7d  %7d\n",
			c.Trouble, inSeconds(c.OutAfter), back, c.Changes, c.Failures, c.Spared, c.Lost)
	}
	if r.Seeds > 1 {
		fmt.Fprintf(&b, "\nThe handler went out in so many of %d runs, of which the first is shown:\n", r.Seeds)
		for _, c := range r.Courses {
			fmt.Fprintf(&b, "%-26s  %d\n", c.Trouble, c.Outs)
		}
	}
	fmt.Fprintf(&b, "\nOver time: x trouble; █ out of the flow, ? probing, ▒ coming back\n")
	for i, c := range r.Courses {
		trouble, state := r.troubles[i].strip(), c.strip()
		fmt.Fprintf(&b, "\n%-26s  %s\n%-26s  %s\n", c.Trouble, trouble, "", state)
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n"))
	return err
}

func inSeconds(s *float64) string {
	if s == nil {
		return "never"
	}
	return fmt.Sprintf("%gs", *s)
}

// strip draws when calls fail, one mark per column.
func (t Trouble) strip() string {
	marks := []byte(strings.Repeat(".", columns))
	for _, s := range t.Spells {
		from, to := int(columns*s.From/t.Length), int((columns*s.To-1)/t.Length)
		for i := from; i <= min(to, columns-1); i++ {
			marks[i] = 'x'
		}
	}
	return string(marks)
}

// strip draws the phases. Each column shows the one that is furthest from normal.
func (c Course) strip() string {
	order := []string{"", fallback.Ramping, fallback.Probing, fallback.Out}
	marks := []rune(".▒?█")
	worst := bins(c.Phases, func(phase string) float64 {
		for i, o := range order {
			if o == phase {
				return float64(i)
			}
		}
		return 0
	}, highest)
	var b strings.Builder
	for _, i := range worst {
		b.WriteRune(marks[int(i)])
	}
	return b.String()
}
