package alert

import (
	"fmt"
	"io"

	"procaas/dsl/datum"
	"procaas/engine/planner"
)

// A dashboard is a Grafana dashboard, with the parts that are needed.
type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Tags          []string   `json:"tags"`
	Timezone      string     `json:"timezone"`
	Editable      bool       `json:"editable"`
	SchemaVersion int        `json:"schemaVersion"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []*panel   `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name  string `json:"name"`
	Label string `json:"label"`
	Type  string `json:"type"`
	Query string `json:"query"`
}

type panel struct {
	ID          int          `json:"id"`
	Type        string       `json:"type"`
	Title       string       `json:"title"`
	Description string       `json:"description,omitempty"`
	GridPos     gridPos      `json:"gridPos"`
	Collapsed   *bool        `json:"collapsed,omitempty"`
	Datasource  *datasource  `json:"datasource,omitempty"`
	Targets     []target     `json:"targets,omitempty"`
	FieldConfig *fieldConfig `json:"fieldConfig,omitempty"`
	Panels      []*panel     `json:"panels,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

type fieldConfig struct {
	Defaults  fieldDefaults `json:"defaults"`
	Overrides []any         `json:"overrides"`
}

type fieldDefaults struct {
	Unit string   `json:"unit"`
	Min  *float64 `json:"min,omitempty"`
	Max  *float64 `json:"max,omitempty"`
}

// The grid of a dashboard is 24 wide, with three panels in a row.
const (
	panelWidth  = 8
	panelHeight = 8
	perLine     = 3
)

// WriteDashboard writes a dashboard for Grafana: a row for all nodes, and one per pipeline, whose
// panels show its handlers. The same pipelines give the same text.
func WriteDashboard(w io.Writer, plans []*planner.Plan) error {
	d := &dashboard{
		UID: "procaas", Title: "ProcaaS", Tags: []string{"procaas"}, Timezone: "browser", Editable: true, SchemaVersion: 39,
		Refresh: "10s", Time: timeRange{"now-1h", "now"},
		Templating: templating{[]variable{{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"}}},
	}
	y := d.row(0, "All nodes", false, nodePanels())
	for _, p := range plans {
		title := p.Pipeline.ID
		if p.Pipeline.Owner != "" {
			title += " · " + p.Pipeline.Owner
		}
		y = d.row(y, title, true, pipelinePanels(p.Pipeline.ID))
	}
	number := 0
	for _, p := range d.Panels {
		number++
		p.ID = number
		for _, inner := range p.Panels {
			number++
			inner.ID = number
		}
	}
	return datum.WriteJSON(w, d)
}

// row adds a row of panels at a height, and returns the next height. A collapsed row contains its
// panels.
func (d *dashboard) row(y int, title string, collapsed bool, panels []*panel) (next int) {
	row := &panel{Type: "row", Title: title, GridPos: gridPos{H: 1, W: perLine * panelWidth, Y: y}, Collapsed: &collapsed}
	d.Panels = append(d.Panels, row)
	for i, p := range panels {
		p.GridPos = gridPos{H: panelHeight, W: panelWidth, X: i % perLine * panelWidth, Y: y + 1 + i/perLine*panelHeight}
	}
	if collapsed {
		row.Panels = panels
		return y + 1
	}
	d.Panels = append(d.Panels, panels...)
	return y + 1 + (len(panels)+perLine-1)/perLine*panelHeight
}

func nodePanels() []*panel {
	return []*panel{
		graph("Events accepted", "reqps", target{Expr: "sum(rate(procaas_events_accepted_total[$__rate_interval]))", LegendFormat: "accepted"},
			target{Expr: "sum by (reason) (rate(procaas_events_shed_total[$__rate_interval]))", LegendFormat: "refused: {{reason}}"}),
		graph("Runs ended", "reqps", target{Expr: "sum by (status) (rate(procaas_runs_total[$__rate_interval]))", LegendFormat: "{{status}}"}),
		graph("Runs that wait", "short", target{Expr: "max(procaas_inbox_waiting)", LegendFormat: "waiting"}),
		graph("Longest wait of a run that is due", "s", target{Expr: "max(procaas_inbox_oldest_seconds)", LegendFormat: "oldest"}),
		graph("Time of a checkpoint", "s", quantiles("procaas_checkpoint_seconds_bucket", "", "")...),
		graph("Errors of the store", "reqps", target{
			Expr:         "sum by (operation) (rate(procaas_store_errors_total[$__rate_interval])) > 0",
			LegendFormat: "{{operation}}",
		}),
		graph("Calls of services under way", "short", target{Expr: "sum by (service) (procaas_service_in_flight)", LegendFormat: "{{service}}"},
			target{Expr: "sum by (service) (procaas_service_limit)", LegendFormat: "{{service}}: limit"}),
		graph("Runs in line for services", "short", target{Expr: "sum by (service) (procaas_service_waiting)", LegendFormat: "{{service}}"}),
		timeline("Services that are down", target{Expr: "max by (service) (procaas_service_down)", LegendFormat: "{{service}}"}),
	}
}

// pipelinePanels show the handlers of a pipeline.
func pipelinePanels(id string) []*panel {
	const by, legend = "sum by (stage, handler) ", "{{stage}}/{{handler}}"
	of := fmt.Sprintf("{pipeline=%q}", id)
	calls := func(outcomes string) string {
		return fmt.Sprintf("%s(rate(procaas_handler_calls_total{pipeline=%q,outcome=~%q}[$__rate_interval]))", by, id, outcomes)
	}
	ratio := graph("Success ratio", "percentunit", target{Expr: calls("succeeded") + " / " + calls("succeeded|failed"), LegendFormat: legend})
	zero, one := 0.0, 1.0
	ratio.FieldConfig.Defaults.Min, ratio.FieldConfig.Defaults.Max = &zero, &one
	return []*panel{
		graph("Runs ended", "reqps", target{
			Expr:         "sum by (status) (rate(procaas_runs_total" + of + "[$__rate_interval]))",
			LegendFormat: "{{status}}",
		}),
		graph("Calls", "reqps", target{Expr: calls("succeeded|failed"), LegendFormat: legend}),
		ratio,
		graph("Time of a call, 99 of 100", "s", quantiles("procaas_handler_seconds_bucket", of, "stage, handler")[1]),
		graph("Handlers that gave up", "reqps", target{
			Expr:         by + "(rate(procaas_handler_given_up_total" + of + "[$__rate_interval])) > 0",
			LegendFormat: legend,
		}),
		graph("Handlers left out", "reqps", target{Expr: calls("skipped") + " > 0", LegendFormat: legend}),
		graph("Calls under way, and runs that wait", "short", target{Expr: by + "(procaas_handler_in_flight" + of + ")", LegendFormat: legend},
			target{Expr: by + "(procaas_handler_waiting" + of + ") > 0", LegendFormat: legend + ": wait"}),
		timeline("Switched off", target{Expr: "max by (stage, handler) (procaas_switch_off" + of + ")", LegendFormat: legend}),
		timeline("Out of the flow by itself", target{
			Expr:         "max by (stage, handler) (procaas_handler_fallback" + of + ")",
			LegendFormat: legend,
		}),
	}
}

// quantiles are the median and the 99th percentile of a histogram, by some labels.
func quantiles(buckets, of, by string) []target {
	legend := ""
	if by != "" {
		by, legend = ", "+by, " {{stage}}/{{handler}}"
	}
	var out []target
	for _, q := range []struct{ q, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		out = append(out, target{
			Expr:         fmt.Sprintf("histogram_quantile(%s, sum by (le%s) (rate(%s%s[$__rate_interval])))", q.q, by, buckets, of),
			LegendFormat: q.name + legend,
		})
	}
	return out
}

// graph is a panel of lines.
func graph(title, unit string, targets ...target) *panel {
	for i := range targets {
		targets[i].RefID = string(rune('A' + i))
	}
	return &panel{
		Type: "timeseries", Title: title, Datasource: &datasource{"prometheus", "${datasource}"}, Targets: targets,
		FieldConfig: &fieldConfig{Defaults: fieldDefaults{Unit: unit}, Overrides: []any{}},
	}
}

// timeline is a panel of a yes/no value.
func timeline(title string, t target) *panel {
	p := graph(title, "bool_yes_no", t)
	p.Type = "state-timeline"
	return p
}
