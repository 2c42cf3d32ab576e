package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"procaas/engine/api/ui/drawing"
	"procaas/engine/api/ui/seen"
	"procaas/engine/canary"
	"procaas/engine/checkpoint"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// marks gives what was changed in the time of the chart of incidents, and when services were down.
func (c *Console) marks(w http.ResponseWriter, r *http.Request) error {
	from, to, err := period(r)
	if err != nil {
		return err
	}
	changes, err := c.o.Engine.Audit(r.Context(), store.AuditFilter{Since: from, Until: to, Limit: 100})
	if err != nil {
		return err
	}
	all, err := c.evidence.Between(r.Context(), from, to)
	if err != nil {
		return err
	}
	out := make([]mark, 0, len(changes)+len(all.Wrong))
	for _, in := range all.Wrong {
		if in.Is == isDown {
			out = append(out, mark{At: in.From, Until: in.To, Kind: "down"})
		}
	}
	for _, a := range changes {
		out = append(out, mark{At: a.Changed.Unix(), Kind: a.Kind})
	}
	return reply(w, out)
}

// A mark is a change on a time axis, or a time in which a service was down.
type mark struct {
	At    int64  `json:"at"` // Unix seconds
	Until int64  `json:"until,omitempty"`
	Kind  string `json:"kind"`
}

// data gives the numbers of charts: of a handler, of an add-on, or of all nodes.
func (c *Console) data(w http.ResponseWriter, r *http.Request) error {
	var columns [][]any
	if path := r.FormValue("handler"); path != "" {
		columns = make([][]any, 5)
		for _, p := range c.history.Of(path) {
			var ratio, p50, p99 any // none without calls
			if p.Ratio >= 0 {
				ratio, p50, p99 = 100*p.Ratio, p.P50, p.P99
			}
			for i, v := range []any{p.At.Unix(), p.Rate, ratio, p50, p99} {
				columns[i] = append(columns[i], v)
			}
		}
	} else if chart, id := c.chart(r); chart != nil {
		columns = chart.Columns(id)
	} else {
		from, to, err := period(r)
		if err != nil {
			return err
		}
		all, err := c.evidence.Between(r.Context(), from, to)
		if err != nil {
			return err
		}
		columns = all.Columns(time.Now())
	}
	return reply(w, columns)
}

// reply sends what scripts read.
func reply(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

type overviewData struct {
	Ranges []string // of the charts
	Since  string   // the chosen one

	Now       seen.Point
	Failing   []string               // what fails now: services, pipelines, handlers; the widest first
	Runs      []stats.PipelineWindow // of all pipelines of this node, the shortest period first
	Accepted  []float64
	Errors    []float64
	P50, P99  *float64 // of the runs that ended last, ms
	Succeeded float64
	Statuses  []statusCount // the other ways in which runs ended
	Pipelines []pipelineRow
	Trouble   []stats.HandlerInfo // out, off or failing: critical ones that fail first

	MoreTrouble int // how many are left out

	Still       standing   // how much stands still
	CountedLate *time.Time // when it was counted, if that is long ago

	Controls  []guard.ControlView
	Failed    []*failureGroup
	Nodes     []records.NodeView
	Services  []guard.ServiceInfo // those that fail first
	Down      bool                // one of them fails
	StoreDown bool
	Canary    *canary.View // that runs, or a version in the shadow
}

type statusCount struct {
	Status string
	Count  float64
}

type pipelineRow struct {
	ID, Flow, Owner string
	On              []string
	Handlers        []stats.HandlerInfo
	Took            stats.DurationView
	Now, Minute     stats.PipelineWindow
	Fails, Calm     bool
}

// read takes in what this node has counted for the pipeline.
func (p *pipelineRow) read(info stats.PipelineInfo) {
	if len(info.Windows) > 1 {
		p.Now, p.Minute = info.Windows[0], info.Windows[1]
	}
	p.Fails = info.Fails()
	p.Calm = p.Minute.Accepted == 0 && p.Minute.Ended == 0
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	d := c.overviewData(r.Context())
	d.Ranges = []string{"15m", "1h", "6h", "24h"}
	d.Since = r.FormValue("since")
	if !slices.Contains(d.Ranges, d.Since) {
		d.Since = "1h"
	}
	c.show(w, r, http.StatusOK, "overview", "Overview", d)
	return nil
}

// recent is how many runs the overview looks at.
const recent = 100

func (c *Console) overviewData(ctx context.Context) overviewData {
	points := c.history.All()
	d := overviewData{
		Accepted: drawing.Series(points, func(p seen.Point) float64 { return p.Accepted }),
		Errors:   drawing.Series(points, func(p seen.Point) float64 { return p.Errors }),
		Services: c.o.Engine.Services(),
	}
	slices.SortStableFunc(d.Services, func(a, b guard.ServiceInfo) int { return cmp.Compare(calm(a), calm(b)) })
	d.Down = len(d.Services) > 0 && calm(d.Services[0]) == 0
	if t := c.o.Engine.Canary(); t.Lasts() {
		v := t.View()
		d.Canary = &v
	}
	if len(points) > 0 {
		d.Now = points[len(points)-1]
	}
	all := c.o.Engine.Pipelines()
	d.Runs = stats.Sum(all)
	d.stand(c.o.Engine.Backlog())
	n := c.history.Numbers()
	d.Succeeded = n.Runs["succeeded"]
	for _, s := range []string{"failed", "cancelled", "ignored"} {
		d.Statuses = append(d.Statuses, statusCount{s, n.Runs[s]})
	}
	infos := c.o.Engine.Handlers()
	rows := map[string]*pipelineRow{}
	for _, p := range c.plans() {
		d.Pipelines = append(d.Pipelines, pipelineRow{ID: p.Pipeline, Flow: p.Flow, On: p.On})
	}
	for i := range d.Pipelines {
		rows[d.Pipelines[i].ID] = &d.Pipelines[i]
	}
	for _, took := range c.o.Engine.Durations() {
		if row := rows[took.Path]; row != nil {
			row.Took = took
		}
	}
	for _, s := range d.Services {
		if calm(s) == 0 {
			d.Failing = append(d.Failing, s.ID)
		}
	}
	for _, p := range all {
		if row := rows[p.Pipeline]; row != nil {
			row.read(p)
		}
		if p.Fails() {
			d.Failing = append(d.Failing, p.Pipeline)
		}
	}
	for _, h := range infos {
		id, _, _ := strings.Cut(h.Path, "/")
		if row := rows[id]; row != nil {
			row.Handlers = append(row.Handlers, h)
		}
		if h.Fails() {
			d.Failing = append(d.Failing, h.Path)
		}
		if troubled(h) {
			d.Trouble = append(d.Trouble, h)
		}
	}
	d.Trouble, d.MoreTrouble = worst(d.Trouble)
	c.fromStore(ctx, &d)
	return d
}

// calm is 0 for a service that fails, and 1 for one that answers.
func calm(s guard.ServiceInfo) int {
	if s.FailingSince != nil || s.ClosedUntil != nil {
		return 0
	}
	return 1
}

// countedLate is how old a count is that is told of.
const countedLate = 10 * time.Second

// stand takes in what stands still.
func (d *overviewData) stand(b stats.BacklogView) {
	d.Still = newStanding(b)
	if b.Counted != nil && time.Since(*b.Counted) > countedLate {
		d.CountedLate = b.Counted
	}
}

// shownTrouble is how many handlers the overview names: when a service is down that all
// call, the runs that failed should still be on the first screens.
const shownTrouble = 15

// troubled reports whether a handler fails, or does not take part.
func troubled(h stats.HandlerInfo) bool {
	return slices.Contains([]string{"bad", "out", "off", "held"}, drawing.Mood(h))
}

// worst puts those first that keep runs from succeeding, and cuts the rest off.
func worst(trouble []stats.HandlerInfo) (shown []stats.HandlerInfo, more int) {
	rank := func(h stats.HandlerInfo) int {
		switch {
		case drawing.Mood(h) == "bad" && h.Critical:
			return 0
		case drawing.Mood(h) == "bad":
			return 1
		}
		return 2 // somebody or something has taken care of it
	}
	slices.SortStableFunc(trouble, func(a, b stats.HandlerInfo) int { return rank(a) - rank(b) })
	n := min(len(trouble), shownTrouble)
	return trouble[:n], len(trouble) - n
}

// fromStore adds what only the store knows.
func (c *Console) fromStore(ctx context.Context, d *overviewData) {
	runs, _, err := c.o.Engine.List(ctx, store.RunFilter{Limit: recent, Status: model.Succeeded})
	d.P50, d.P99 = durations(runs)
	if err == nil {
		runs, _, err = c.o.Engine.List(ctx, store.RunFilter{Limit: recent, Status: model.Failed})
		d.Failed = groupFailures(runs)
	}
	if err == nil {
		d.Nodes, err = c.o.Engine.Nodes(ctx)
	}
	if err == nil {
		d.Controls, err = c.o.Engine.Controls(ctx)
		d.Controls = guard.Apart(d.Controls, time.Now())
	}
	d.StoreDown = err != nil
}

// A failureGroup has runs that failed alike.
type failureGroup struct {
	Cause cause // of the last of them
	Last  checkpoint.RunView
	Runs  int
}

// numbers is what differs in errors that are alike: counts, times, addresses and ids.
var numbers = regexp.MustCompile(`[0-9a-f-]*[0-9][0-9a-f-]*`)

// groupFailures puts runs together that failed at one handler with the same error, numbers apart. The first of each is the
// last that failed.
func groupFailures(runs []checkpoint.RunView) (groups []*failureGroup) {
	known := map[string]*failureGroup{}
	for _, r := range runs {
		why := causeOf(r)
		name := r.Pipeline + "\n" + why.Path + "\n" + numbers.ReplaceAllString(why.Text, "0")
		g := known[name]
		if g == nil {
			g = &failureGroup{Cause: why, Last: r}
			known[name] = g
			groups = append(groups, g)
		}
		g.Runs++
	}
	return groups[:min(len(groups), shownFailures)]
}

// shownFailures bounds the groups of failed runs on the overview.
const shownFailures = 8

// durations returns the median and the 99th percentile of runs, in ms.
func durations(runs []checkpoint.RunView) (p50, p99 *float64) {
	var ms []float64
	for _, r := range runs {
		if r.Finished != nil {
			ms = append(ms, float64(r.Finished.Sub(r.Accepted).Microseconds())/1000)
		}
	}
	if len(ms) == 0 {
		return nil, nil
	}
	slices.Sort(ms)
	return &ms[len(ms)/2], &ms[len(ms)*99/100]
}
