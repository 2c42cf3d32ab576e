package drawing

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"procaas/engine/api/ui/words"
	"procaas/engine/planner"
	"procaas/engine/stats"
)

// A sparkline shows where a number goes; it has no axes.
const (
	sparkWidth  = 160
	sparkHeight = 32
)

// Spark draws a sparkline. The first samples take the width of leastSamples, so that they can be seen.
func Spark(values []float64, label string) template.HTML {
	// Not 0, by which is divided below: a number that is always 0 is a line at the bottom.
	top := 1e-9
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="spark" viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`, sparkWidth, sparkHeight,
		template.HTMLEscapeString(label))
	b.WriteString(`<polyline points="`)
	for i, v := range values {
		x := sparkWidth - float64(len(values)-1-i)*sparkWidth/float64(max(len(values), leastSamples)-1)
		fmt.Fprintf(&b, "%.1f,%.1f ", x, sparkHeight-1-(sparkHeight-2)*max(v, 0)/top)
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String())
}

// A sparkline shows the samples of ten minutes at most, and has room for those of two minutes at least.
const (
	sparkSamples = 120
	leastSamples = 24
)

// Series takes the last samples of one number.
func Series[T any](points []T, number func(T) float64) []float64 {
	if len(points) > sparkSamples {
		points = points[len(points)-sparkSamples:]
	}
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = number(p)
	}
	return out
}

// The graph of a pipeline: the browser lays its stages out in rows, as wide as it is, and handlers below each other in
// their stage. Only the wires are drawn here. They need no more than the order of the handlers, since a handler waits for
// earlier ones alone.
const (
	boxPitch  = 76 // from one handler to the next, as in console.css
	boxMiddle = 34
	trunkAt   = 7 // what leads into a stage, from the left of its drawing
	laneWidth = 9
)

// A Graph is a pipeline, drawn.
type Graph struct {
	Stages []graphStage
	Waits  []edge
}

type graphStage struct {
	Number   int
	ID, When string
	Each     string // the list whose elements repeat it
	Boxes    []Box
	Fork     string // paths of SVG: from what leads in to the handlers that start at once
	Edges    []edge
	Join     string // from the handlers that nobody waits for to what leads out
	Gutter   int
	Height   int
	Folded   bool // its handlers are only named
}

type Box struct {
	Step   planner.StepView
	Href   string
	Class  string
	Branch string
	Badges string
	Line   string // what is told of its calls
	Title  string
}

type edge struct {
	Path string // of SVG
	Why  string
}

// NewGraph draws a pipeline. paint says how each handler looks.
func NewGraph(v planner.PlanView, paint func(*Box)) (g Graph) {
	for i, stage := range v.Stages {
		s := graphStage{Number: i + 1, ID: stage.ID, When: stage.Enabled, Each: stage.ForEach, Height: len(stage.Handlers) * boxPitch}
		for _, step := range stage.Handlers {
			b := Box{Step: step, Branch: branchOf(step, stage), Href: words.HandlerURL(step.Path)}
			paint(&b)
			s.Boxes = append(s.Boxes, b)
		}
		s.wire(stage.Handlers)
		g.Waits = append(g.Waits, s.Edges...)
		g.Stages = append(g.Stages, s)
	}
	return g
}

// Fold shows only the names of the handlers of the last stages.
func (g *Graph) Fold(stages int) {
	for i := max(0, len(g.Stages)-stages); i < len(g.Stages); i++ {
		g.Stages[i].Folded = true
	}
}

// wire draws who starts at once, who waits for whom, and what leads out. Those who wait for the same handler hang on one
// lane, and lanes that do not meet share their place.
func (s *graphStage) wire(steps []planner.StepView) {
	if len(steps) < 2 {
		return
	}
	at, last := map[string]int{}, map[string]int{} // rows of handlers, and of the last one that waits for them
	for row, step := range steps {
		at[step.ID] = row
		for _, e := range step.After {
			if !e.Implied {
				last[e.Handler] = row
			}
		}
	}
	lanes, free := map[string]int{}, []int{} // free from which row on
	for row, step := range steps {
		if last[step.ID] == 0 {
			continue
		}
		lane := slices.IndexFunc(free, func(from int) bool { return from <= row })
		if lane < 0 {
			lane, free = len(free), append(free, 0)
		}
		lanes[step.ID], free[lane] = lane, last[step.ID]+1
	}
	s.Gutter = trunkAt + 15 + laneWidth*len(free)
	var begin, end []int
	for row, step := range steps {
		y := row*boxPitch + boxMiddle
		if len(step.After) == 0 {
			begin = append(begin, y)
		}
		if last[step.ID] == 0 {
			end = append(end, y)
		}
		for _, e := range step.After {
			if e.Implied {
				continue
			}
			x := s.Gutter - 8 - laneWidth*lanes[e.Handler]
			s.Edges = append(s.Edges, edge{
				Path: fmt.Sprintf("M%d %dH%dV%dH%d", s.Gutter, at[e.Handler]*boxPitch+boxMiddle+14, x, y, s.Gutter-2),
				Why:  fmt.Sprintf("%s waits for %s: %s (%s, %s)", step.ID, e.Handler, e.Why, e.From, e.To),
			})
		}
	}
	s.Fork, s.Join = bracket(begin, 0, s.Gutter), bracket(end, 2*trunkAt, 0)
}

// bracket leads from one side of a drawing to the rows at its other side: straight to the first, and along a trunk to those
// below it.
func bracket(rows []int, from, to int) (path string) {
	bend := 6
	if to < from {
		bend = -bend
	}
	for i, y := range rows {
		if i == 0 {
			path = fmt.Sprintf("M%d %dH%d", from, y, to)
			continue
		}
		path += fmt.Sprintf("M%d %dV%dQ%d %d %d %dH%d", trunkAt, rows[0], y-6, trunkAt, y, trunkAt+bend, y, to)
	}
	return path
}

// branchOf tells when the branch of a handler is taken; nothing for one that belongs to none.
func branchOf(step planner.StepView, stage planner.StageView) string {
	if step.Branch == 0 {
		return ""
	}
	for _, w := range stage.Branches {
		if w.Number == step.Branch && w.When != "" {
			return "if " + w.When
		}
	}
	return "otherwise"
}

// AsItIs paints handlers by how they do: what keeps them from running freely, and how their calls end.
func AsItIs(infos map[string]stats.HandlerInfo) func(*Box) {
	return func(b *Box) {
		info, known := infos[b.Step.Path]
		if !known {
			b.Class = "idle" // in the playground
			return
		}
		b.Class, b.Line = Mood(info), "no calls"
		if info.Calls > 0 {
			b.Line = fmt.Sprintf("%s/s · %s · %s", words.Number(info.CallsPerS), words.Percent(info.Ratio()), words.Millis(info.LatencyP99))
		}
		var badges []string
		switch info.Switch {
		case "off":
			badges = append(badges, "OFF")
		case "hold":
			badges = append(badges, "HELD")
		}
		if info.Waiting+int64(info.Parked) > 0 {
			badges = append(badges, fmt.Sprintf("%d wait", info.Waiting+int64(info.Parked)))
		}
		if info.RateLimit != "" {
			badges = append(badges, "≤ "+info.RateLimit)
		}
		if f := info.Fallback; f.IsOut() {
			badges = append(badges, strings.TrimSpace("fallback: "+f.State+" "+words.Left(f.Until)))
		}
		b.Badges = strings.Join(badges, " · ")
		b.Title = strings.Join(slices.Concat([]string{b.Step.Path, info.Owner}, info.Effective, []string{info.LastError}), "\n")
	}
}
