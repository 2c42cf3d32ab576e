package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/engine/checkpoint"
	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/records"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// longestStream is how long a live page is fed on one connection; then the browser
// connects again, and so finds a new node after a deployment.
const longestStream = 10 * time.Minute

// live feeds a page that is open with its fresh part.
func (c *Console) live(w http.ResponseWriter, r *http.Request) error {
	render := map[string]func(context.Context, string) ([]byte, error){
		"overview": func(ctx context.Context, _ string) ([]byte, error) {
			return c.part("overview", c.overviewData(ctx)), nil
		},
		"pipeline": func(_ context.Context, id string) ([]byte, error) {
			data, err := c.pipelineData(id)
			if err != nil {
				return nil, err
			}
			return c.part("pipeline", data), nil
		},
		"handler": func(ctx context.Context, path string) ([]byte, error) {
			data, err := c.handlerData(ctx, path)
			if err != nil {
				return nil, err
			}
			return c.part("handler", data), nil
		},
		"queue": func(ctx context.Context, _ string) ([]byte, error) {
			data, err := systems{c}.queueData(ctx)
			if err != nil {
				return nil, err
			}
			return c.part("queue", data), nil
		},
		"inbox": func(ctx context.Context, _ string) ([]byte, error) {
			data, err := systems{c}.cellsData(ctx)
			if err != nil {
				return nil, err
			}
			return c.part("cells", data), nil
		},
		"clusters": func(ctx context.Context, _ string) ([]byte, error) {
			data, err := systems{c}.clustersData(ctx)
			if err != nil {
				return nil, err
			}
			return c.part("clusters", data), nil
		},
		"shards": func(ctx context.Context, _ string) ([]byte, error) {
			data, err := systems{c}.shardsData(ctx)
			if err != nil {
				return nil, err
			}
			return c.part("shards", data), nil
		},
		"run": func(ctx context.Context, id string) ([]byte, error) {
			data, err := c.runData(ctx, id)
			if err != nil {
				return nil, err
			}
			return c.part("run", data), nil
		},
	}[r.FormValue("page")]
	if render == nil {
		return notFound("There is no such live page.")
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	end := time.NewTimer(longestStream)
	defer end.Stop()
	tick := time.NewTicker(c.freshness)
	defer tick.Stop()
	for {
		// The server's write timeout is for answers; a stream has one for each part.
		if err := out.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		part, err := render(ctx, r.FormValue("of"))
		cancel()
		if err != nil {
			part = []byte(`<p class="notice bad">The store cannot be read at present.</p>`)
		}
		if _, err := w.Write(message(part)); err != nil {
			return nil // the browser has left
		}
		if err := out.Flush(); err != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-end.C:
			return nil
		case <-r.Context().Done():
			return nil
		case <-c.ended:
			return nil
		}
	}
}

// message makes an event of a part, as the stream wants it.
func message(part []byte) []byte {
	var b bytes.Buffer
	b.WriteString("event: part\n")
	for line := range bytes.Lines(part) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\n"))
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return b.Bytes()
}

// marks gives what has changed in the last hour, for the time axis of the incidents.
func (c *Console) marks(w http.ResponseWriter, r *http.Request) error {
	changes, err := c.o.Engine.Audit(r.Context(), store.AuditFilter{Since: time.Now().Add(-time.Hour), Limit: 100})
	if err != nil {
		return err
	}
	out := make([]mark, 0, len(changes))
	for _, a := range changes {
		what := a.Kind
		if a.Name != "" {
			what += " " + a.Name
		}
		out = append(out, mark{a.Changed.Unix(), a.Kind, what})
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}

// A mark is a change on a time axis.
type mark struct {
	At   int64  `json:"at"` // Unix seconds
	Kind string `json:"kind"`
	What string `json:"what"`
}

// data gives the numbers of charts: of a handler, of a cluster, or of the node.
func (c *Console) data(w http.ResponseWriter, r *http.Request) error {
	var columns [][]any
	if path := r.FormValue("handler"); path != "" {
		columns = make([][]any, 5)
		for _, p := range c.history.of(path) {
			var ratio any
			if p.Ratio >= 0 {
				ratio = 100 * p.Ratio
			}
			var p50, p99 any // none without calls
			if p.Ratio >= 0 {
				p50, p99 = p.P50, p.P99
			}
			for i, v := range []any{p.At.Unix(), p.Rate, ratio, p50, p99} {
				columns[i] = append(columns[i], v)
			}
		}
	} else if id := r.FormValue("cluster"); id != "" {
		columns = make([][]any, 4)
		for _, p := range c.history.ofCluster(id) {
			for i, v := range []any{p.At.Unix(), p.Gini, p.Requests, p.Drops} {
				columns[i] = append(columns[i], v)
			}
		}
	} else {
		columns = make([][]any, 4)
		for _, p := range c.history.all() {
			for i, v := range []any{p.At.Unix(), 100 * p.Errors, p.Accepted, p.Out} {
				columns[i] = append(columns[i], v)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(columns)
}

type overviewData struct {
	Points     []point
	Now        point
	ErrorShare *float64
	Accepted   []float64
	Errors     []float64
	Waiting    []float64
	P50, P99   *float64 // of the runs that ended last, ms
	Statuses   []statusCount
	Pipelines  []pipelineRow
	Trouble    []stats.HandlerInfo // out, off or failing: critical ones that fail first

	MoreTrouble int // how many are left out

	Still       int                // runs that stand still and should not
	StillFor    float64            // for how long the first of them does, in seconds
	Parked      []stats.ParkedRuns // all that stand still; the most first
	CountedLate *time.Time         // when they were counted, if that is long ago
	Down        []guard.ServiceInfo

	Controls  []guard.ControlView
	Failed    []checkpoint.RunView
	Nodes     []records.NodeView
	Services  []guard.ServiceInfo
	StoreDown bool
}

type statusCount struct {
	Status string
	Count  float64
}

type pipelineRow struct {
	ID, Flow, Owner string
	On              []string
	Handlers        []stats.HandlerInfo
	Rate            float64
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request) error {
	c.show(w, r, http.StatusOK, "overview", "Overview", c.overviewData(r.Context()))
	return nil
}

// recent is how many runs the overview looks at.
const recent = 100

func (c *Console) overviewData(ctx context.Context) overviewData {
	points := c.history.all()
	d := overviewData{
		Points: points, Accepted: series(points, func(p point) float64 { return p.Accepted }),
		Errors: series(points, func(p point) float64 { return p.Errors }), Waiting: series(points, func(p point) float64 { return p.Waiting }),
		Services: c.o.Engine.Services(),
	}
	if len(points) > 0 {
		d.Now = points[len(points)-1]
		d.ErrorShare = &d.Now.Errors
	}
	d.stand(c.o.Engine.Backlog())
	n := c.o.Numbers()
	for _, s := range []string{"succeeded", "failed", "cancelled", "ignored"} {
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
	for _, h := range infos {
		id, _, _ := strings.Cut(h.Path, "/")
		if row := rows[id]; row != nil {
			row.Handlers = append(row.Handlers, h)
			row.Rate = max(row.Rate, h.CallsPerS)
		}
		if m := mood(h); m == "bad" || m == "out" || m == "off" {
			d.Trouble = append(d.Trouble, h)
		}
	}
	d.Trouble, d.MoreTrouble = worst(d.Trouble)
	c.fromStore(ctx, &d)
	return d
}

// countedLate is how old a count is that is told of.
const countedLate = 10 * time.Second

// stand takes in what stands still. What waits for a time or an event is as it should be, and
// failed runs are shown elsewhere.
func (d *overviewData) stand(b stats.BacklogView) {
	for _, p := range b.Parked {
		switch p.Reason {
		case stats.ParkedTime, stats.ParkedEvent, stats.ParkedState, stats.ParkedFailed:
			continue
		}
		d.Still += p.Runs
		d.StillFor = max(d.StillFor, p.AgeS)
	}
	d.Parked = b.Parked[:min(len(b.Parked), shownTrouble)]
	if b.Counted != nil && time.Since(*b.Counted) > countedLate {
		d.CountedLate = b.Counted
	}
	for _, s := range d.Services {
		if s.FailingSince != nil {
			d.Down = append(d.Down, s)
		}
	}
}

// shownTrouble is how many handlers the overview names: when a service is down that all
// call, the runs that failed should still be on the first screens.
const shownTrouble = 15

// worst puts those first that keep runs from succeeding, and cuts the rest off.
func worst(trouble []stats.HandlerInfo) (shown []stats.HandlerInfo, more int) {
	rank := func(h stats.HandlerInfo) int {
		switch {
		case mood(h) == "bad" && h.Critical:
			return 0
		case mood(h) == "bad":
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
		d.Failed, _, err = c.o.Engine.List(ctx, store.RunFilter{Limit: 8, Status: model.Failed})
	}
	if err == nil {
		d.Nodes, err = c.o.Engine.Nodes(ctx)
	}
	if err == nil {
		d.Controls, err = c.o.Engine.Controls(ctx)
		d.Controls = slices.DeleteFunc(d.Controls, func(v guard.ControlView) bool { return v.Expired })
	}
	d.StoreDown = err != nil
}

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
