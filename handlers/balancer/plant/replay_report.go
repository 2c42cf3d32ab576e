package plant

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// shownMoves is how many moves of each policy are shown.
const shownMoves = 5

// Strip removes the data of single observations.
func (r *Replayed) Strip() {
	for i := range r.Policies {
		r.Policies[i].Samples = nil
	}
}

// WriteText writes a report for people.
func (r *Replayed) WriteText(w io.Writer) error {
	var b strings.Builder
	began := time.UnixMilli(int64(math.Round(1000 * r.From))).UTC()
	fmt.Fprintf(&b, "%s: %d observations over %v from %s, balanced by %s; workers reported %.3f%% dropped\n", r.Cluster, r.Observations,
		seconds(r.To-r.From), began.Format("2006-01-02 15:04:05 UTC"), r.Policy, 100*r.Measured)
	b.WriteString("policy      moves  to and fro  est. dropped  worst load  hottest  mean Gini  last Gini\n")
	for _, o := range r.Policies {
		fmt.Fprintf(&b, "%-8s %8d %11d %13s %11s %8s %10.3f %10.3f\n", o.Policy, o.Moves, o.Oscillations,
			percent(o.Drops, 3), percent(o.Worst, 0), percent(o.Hottest, 0), o.Gini, o.Last)
	}
	r.chart(&b)
	for _, o := range r.Policies[1:] {
		if len(o.Moved) == 0 {
			fmt.Fprintf(&b, "%s would have moved nothing\n", o.Policy)
			continue
		}
		fmt.Fprintf(&b, "%s would have moved\n", o.Policy)
		for _, m := range o.Moved[:min(shownMoves, len(o.Moved))] {
			fmt.Fprintf(&b, "  after %v partition %d from %s to %s: %s\n", seconds(m.After), m.Partition, m.From, m.To, m.Reason)
		}
		if rest := len(o.Moved) - shownMoves; rest > 0 {
			fmt.Fprintf(&b, "  and %d more\n", rest)
		}
	}
	for _, note := range r.Notes {
		b.WriteString("note: " + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// chart draws the Gini index of each policy over time.
func (r *Replayed) chart(b *strings.Builder) {
	top := 0.0
	lines := make([][]float64, len(r.Policies))
	for i, o := range r.Policies {
		for _, m := range o.Samples {
			lines[i] = append(lines[i], m.Gini)
			top = max(top, m.Gini)
		}
	}
	fmt.Fprintf(b, "Gini index over time, up to %.3f\n", top)
	for i, o := range r.Policies {
		fmt.Fprintf(b, "%-8s %s\n", o.Policy, bars(lines[i], top))
	}
}

func percent(x *float64, digits int) string {
	if x == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.*f%%", digits, 100**x)
}

func seconds(s float64) time.Duration {
	return time.Duration(math.Round(s*10)) * (time.Second / 10)
}
