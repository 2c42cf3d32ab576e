package top

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/stats"
)

// This file shows how long runs and stages take.

const (
	mostTook = 5  // pipelines or stages of a view
	tookPath = 36 // maximum
)

// durations returns what a node has counted for a path: for the stages, if the path is one of a pipeline or below it, else for
// pipelines.
func durations(ctx context.Context, node *client.Client, below string) ([]stats.DurationView, error) {
	all, err := node.Durations(ctx)
	pipeline, rest, _ := strings.Cut(below, "/")
	stage, _, _ := strings.Cut(rest, "/")
	return slices.DeleteFunc(all, func(d stats.DurationView) bool {
		of, at, inside := strings.Cut(d.Path, "/")
		switch {
		case below == "":
			return inside
		case stage != "":
			return of != pipeline || at != stage
		}
		return of != pipeline
	}), err
}

// addTook adds the counts of another node.
func (v *topView) addTook(others []stats.DurationView) {
	for _, o := range others {
		i := slices.IndexFunc(v.took, func(d stats.DurationView) bool { return d.Path == o.Path })
		if i < 0 {
			v.took = append(v.took, o)
			continue
		}
		v.took[i].Add(o)
	}
}

// durations draws the slowest pipelines or stages, compared with what was before.
func (v *topView) durations(b *bytes.Buffer, s *screen) {
	rows := slices.Clone(v.took)
	slices.SortStableFunc(rows, func(a, b stats.DurationView) int { return cmp.Compare(rank(&b), rank(&a)) })
	most := mostTook
	if s.height > 0 { // the handlers have the larger part of the screen
		most = min(most, s.height/3-bytes.Count(b.Bytes(), []byte("\n")))
	}
	if len(rows) == 0 || most < 1 {
		return
	}
	more := len(rows) - most
	if more > 0 {
		rows = rows[:most]
	}
	width, most := len("RUNS, STAGES"), tookPath
	targets := slices.ContainsFunc(rows, func(d stats.DurationView) bool { return d.Target != nil })
	if targets {
		most -= len(" MISSED")
	}
	for i := range rows {
		width = max(width, min(len(rows[i].Path), most))
	}
	if targets {
		targetRows(b, s, rows, width)
		rows = nil
	} else {
		s.line(b, bold, fmt.Sprintf(tookColumns, width, "RUNS, STAGES", "ENDED1H", "P99/1M", "P99/1H", "BEFORE", "P50/1H", "BEFORE"))
	}
	for i := range rows {
		took := shown(&rows[i])
		s.line(b, "", fmt.Sprintf(tookColumns, width, shortenTail(rows[i].Path, width), cli.Count(took.Hour.Ended), millisText(took.Minute.P99),
			millisText(took.Hour.P99), millisText(took.HourBefore.P99), millisText(took.Hour.P50), millisText(took.HourBefore.P50)))
	}
	if more > 0 {
		s.line(b, "", fmt.Sprintf("… and %d more", more))
	}
}

const tookColumns = "%-*s %7s %6s %6s %6s %6s %6s"

// targetRows draws rows of which some have a target, without the medians.
func targetRows(b *bytes.Buffer, s *screen, rows []stats.DurationView, width int) {
	const columns = "%-*s %7s %6s %6s %6s %6s %6s %6s"
	s.line(b, bold, fmt.Sprintf(columns, width, "RUNS, STAGES", "ENDED1H", "P99/1M", "P99/1H", "BEFORE", "TARGET", "KEPT", "BUDGET"))
	for i := range rows {
		took := shown(&rows[i])
		target := "-"
		isKept := "-"
		left := "-"
		style := ""
		if t := rows[i].Target; t != nil {
			target = millisText(new(float64(t.TargetMS)))
			if t.Kept != nil {
				isKept = "yes"
			}
			if t.IsMissed() {
				isKept, style = "no", red
			}
			if t.Week.Left != nil {
				left = fmt.Sprintf("%.0f%%", 100**t.Week.Left)
			}
		}
		s.line(b, style, fmt.Sprintf(columns, width, shortenTail(rows[i].Path, width), cli.Count(took.Hour.Ended), millisText(took.Minute.P99),
			millisText(took.Hour.P99), millisText(took.HourBefore.P99), target, isKept, left))
	}
}

// shortenTail cuts a text at its end.
func shortenTail(text string, width int) string {
	if len(text) <= width {
		return text
	}
	return text[:width-1] + "…"
}

// shown are the durations that count for people: of runs from their acceptance, of stages from their begin.
func shown(d *stats.DurationView) *stats.Spans {
	if strings.Contains(d.Path, "/") {
		return &d.Begun
	}
	return &d.Accepted
}

// rank is the p99 of the last minute, or else of the last hour.
func rank(d *stats.DurationView) float64 {
	took := shown(d)
	for _, p99 := range []*float64{took.Minute.P99, took.Hour.P99} {
		if p99 != nil {
			return *p99
		}
	}
	return 0
}
