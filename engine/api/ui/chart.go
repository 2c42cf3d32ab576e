package ui

import (
	"fmt"
	"html/template"
	"strings"

	"procaas/engine/planner"
	"procaas/engine/stats"
)

// A sparkline shows where a number goes; it has no axes.
const (
	sparkWidth  = 160
	sparkHeight = 32
)

// spark draws a sparkline, as wide as an hour.
func spark(values []float64, label string) template.HTML {
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
		x := sparkWidth - float64(len(values)-1-i)*sparkWidth/float64(max(sparkSamples-1, 1))
		fmt.Fprintf(&b, "%.1f,%.1f ", x, sparkHeight-1-(sparkHeight-2)*max(v, 0)/top)
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String())
}

// sparkSamples is how many samples a sparkline shows: ten minutes.
const sparkSamples = 120

// series takes the last samples of one number.
func series[T any](points []T, number func(T) float64) []float64 {
	if len(points) > sparkSamples {
		points = points[len(points)-sparkSamples:]
	}
	out := make([]float64, len(points))
	for i, p := range points {
		out[i] = number(p)
	}
	return out
}

// The graph of a pipeline: stages are columns, handlers are boxes in them.
const (
	boxWidth    = 210
	boxHeight   = 58
	boxGap      = 26
	columnGap   = 70
	graphTop    = 46
	graphMargin = 16
)

// A graph is a pipeline, drawn.
type graph struct {
	Width, Height int
	Stages        []graphStage
}

type graphStage struct {
	X         int
	ID, When  string
	Each      string // the list whose elements repeat it
	Boxes     []box
	Edges     []edge
	Links     bool // an arrow to the next stage
	Middle    int
	ArrowFrom int
	ArrowTo   int
}

type box struct {
	X, Y   int
	Step   planner.StepView
	Info   stats.HandlerInfo
	Branch string
	Badges string
	Line   string // what is told of its calls
}

type edge struct {
	Path string // of SVG
	Why  string
}

// newGraph lays a pipeline out.
func newGraph(v planner.PlanView, infos map[string]stats.HandlerInfo) graph {
	g := graph{Height: graphTop + boxHeight + graphMargin}
	x := graphMargin + columnGap/2
	for i, stage := range v.Stages {
		s := graphStage{X: x, ID: stage.ID, When: stage.Enabled, Each: stage.ForEach, Links: i < len(v.Stages)-1}
		at := map[string]int{}
		for k, step := range stage.Handlers {
			y := graphTop + k*(boxHeight+boxGap)
			at[step.ID] = y
			s.Boxes = append(s.Boxes, newBox(x, y, step, stage, infos[step.Path]))
			g.Height = max(g.Height, y+boxHeight+graphMargin)
			for _, e := range step.After {
				if !e.Implied {
					s.Edges = append(s.Edges, newEdge(x, at[e.Handler], y, e, step))
				}
			}
		}
		s.Middle, s.ArrowFrom, s.ArrowTo = graphTop+boxHeight/2, x+boxWidth+6, x+boxWidth+columnGap-8
		g.Stages = append(g.Stages, s)
		x += boxWidth + columnGap
	}
	g.Width = x
	return g
}

// newBox lays out a handler, with what keeps it from running freely and how its calls do.
func newBox(x, y int, step planner.StepView, stage planner.StageView, info stats.HandlerInfo) box {
	b := box{X: x, Y: y, Step: step, Info: info}
	if step.Branch > 0 {
		when := "otherwise"
		for _, w := range stage.Branches {
			if w.Number == step.Branch && w.When != "" {
				when = "if " + w.When
			}
		}
		b.Branch = when
	}
	var badges []string
	if step.Critical {
		badges = append(badges, "critical")
	}
	switch info.Switch {
	case "off":
		badges = append(badges, "OFF")
	case "hold":
		badges = append(badges, "HELD")
	}
	if info.RateLimit != "" {
		badges = append(badges, "≤ "+info.RateLimit)
	}
	if f := info.Fallback; f.IsOut() {
		badges = append(badges, strings.TrimSpace("fallback: "+f.State+" "+left(f.Until)))
	}
	b.Badges = strings.Join(badges, " · ")
	b.Line = "no calls"
	if info.Calls > 0 {
		b.Line = fmt.Sprintf("%s/s · %s · %s", number(info.CallsPerS), percent(info.SuccessRatio), millis(info.LatencyP99))
	}
	return b
}

// newEdge draws a bow at the left of the boxes, from the earlier to the later one.
func newEdge(x, from, to int, e planner.EdgeView, step planner.StepView) edge {
	y1, y2 := from+boxHeight/2, to+boxHeight/2
	// A straight line where nothing is between the two.
	if to-from == boxHeight+boxGap {
		return edge{
			Path: fmt.Sprintf("M%d %d L%d %d", x+boxWidth/2, from+boxHeight, x+boxWidth/2, to-3),
			Why:  fmt.Sprintf("%s waits for %s: %s (%s, %s)", step.ID, e.Handler, e.Why, e.From, e.To),
		}
	}
	bow := min(columnGap-20, 18+(to-from)/12)
	return edge{
		Path: fmt.Sprintf("M%d %d C%d %d %d %d %d %d", x, y1, x-bow, y1, x-bow, y2, x-3, y2),
		Why:  fmt.Sprintf("%s waits for %s: %s (%s, %s)", step.ID, e.Handler, e.Why, e.From, e.To),
	}
}
