package diagram

import (
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/emicklei/dot"

	"procaas/engine/planner"
)

// drawDOT draws a plan for Graphviz: a box for each stage, and in it the waits
// with their reasons.
func drawDOT(v planner.PlanView) *dot.Graph {
	g := dot.NewGraph(dot.Directed)
	g.Attr("label", v.Pipeline)
	g.Attr("labelloc", "t")
	g.Attr("compound", "true")
	g.Attr("fontname", "sans-serif")
	g.NodeInitializer(func(n dot.Node) { n.Box().Attr("fontname", "sans-serif") })
	g.EdgeInitializer(func(e dot.Edge) { e.Attr("fontname", "sans-serif").Attr("fontsize", "10") })
	var last dot.Node
	var lastBox string
	for i, stage := range v.Stages {
		box := g.Subgraph(strconv.Itoa(i), dot.ClusterOption{})
		box.Label(stageCaption(stage))
		first := dotStage(box, stage)
		if i > 0 {
			// Graphviz draws edges between nodes only. These attributes cut the edge at the boxes.
			g.Edge(last, first).Attr("ltail", lastBox).Attr("lhead", box.GetID()).Bold()
		}
		if i == 0 {
			for _, s := range v.Sources {
				g.Edge(g.Node(s.Kind+" "+s.ID).Label(sourceCaption(s, "\n")).Attr("shape", "cds"), first).Attr("lhead", box.GetID()).Bold()
			}
		}
		last, lastBox = first, box.GetID()
	}
	return g
}

// dotStage fills the box of a stage and returns one of its nodes, for edges to the box. An edge
// leads to an earlier handler only, so its node exists already.
func dotStage(box *dot.Graph, stage planner.StageView) dot.Node {
	nodes := map[string]dot.Node{}
	if len(stage.Handlers) == 0 {
		return box.Node(box.GetID()).Label("no handlers").Attr("style", "dotted")
	}
	for _, h := range stage.Handlers {
		n := box.Node(h.Path).Label(stepCaption(h, "\n"))
		if !h.Critical {
			n.Attr("style", "dashed")
		}
		nodes[h.ID] = n
		for _, e := range h.After {
			if !e.Implied {
				box.Edge(nodes[e.Handler], n, e.Why)
			}
		}
	}
	return nodes[stage.Handlers[0].ID]
}

// drawMermaid draws a plan as a Mermaid flowchart. The nodes are numbered, because ids may contain
// Mermaid syntax.
func drawMermaid(v planner.PlanView) string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for i, s := range v.Sources {
		fmt.Fprintf(&b, "  e%d>%s] ==> s0\n", i, mermaidText(sourceCaption(s, " · ")))
	}
	for i, stage := range v.Stages {
		fmt.Fprintf(&b, "  subgraph s%d[%s]\n", i, mermaidText(stageCaption(stage)))
		number := map[string]int{}
		for j, h := range stage.Handlers {
			number[h.ID] = j
			open, end := "[", "]"
			if !h.Critical {
				open, end = "([", "])"
			}
			fmt.Fprintf(&b, "    s%dh%d%s%s%s\n", i, j, open, mermaidText(stepCaption(h, " · ")), end)
		}
		for j, h := range stage.Handlers {
			for _, e := range h.After {
				if !e.Implied {
					fmt.Fprintf(&b, "    s%dh%d -->|%s| s%dh%d\n", i, number[e.Handler], mermaidText(e.Why), i, j)
				}
			}
		}
		b.WriteString("  end\n")
	}
	for i := range max(len(v.Stages)-1, 0) {
		fmt.Fprintf(&b, "  s%d ==> s%d\n", i, i+1)
	}
	return b.String()
}

// mermaidText quotes a text, so that nothing in it is syntax.
func mermaidText(s string) string {
	return `"` + strings.ReplaceAll(html.EscapeString(s), "\n", "<br/>") + `"`
}
