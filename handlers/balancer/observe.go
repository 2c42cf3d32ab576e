package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/dsl/urls"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// Observe asks all workers of a cluster for their load, at the same time.
//
// It asks each worker for its extended healthcheck. If the reply has another status than 200 or is
// no valid report, it pings the worker. It ignores a report with impossible numbers, such as
// negative or huge ones, but the worker counts as alive. A worker that answers neither in time is
// not up. This does not fail the handler: it is part of the result.
//
// A worker that becomes silent is asked once more, and twice if the step is 4 seconds or longer. This
// takes at most half of the step. Each unanswered healthcheck counts, so policies wait for one report
// less, or for none with long steps. A worker whose address refuses connections is asked twice more in any case.
// If it still refuses, it has ended, and its partitions move at once. A worker that is slow or
// cannot be reached never counts as ended this way.
//
// If the observation is larger than 64 KiB, the response has a reference to it: cluster, t, version
// and stored. The observation itself is a document in the store.
//
//	id: observe
//	balancer.observe: {cluster: fanout}
type Observe struct {
	bound

	// Cluster is the id of the cluster.
	Cluster string `yaml:"cluster" required:"true"`
}

// clusterOf returns the cluster of a call.
func clusterOf(c *engine.Call, id string) (*language.Cluster, error) {
	cluster := language.ClusterOf(c.Bundle, id)
	if cluster == nil {
		return nil, model.Permanent(fmt.Errorf("no cluster %q is declared", id))
	}
	return cluster, nil
}

// checkCluster reports an undeclared cluster.
func checkCluster(b *tree.Body) {
	v := b.Field("cluster")
	data, fixed := v.Literal()
	id, ok := data.(string)
	if !fixed || !ok || language.ClusterOf(b.Bundle, id) != nil {
		return
	}
	var known []string
	for _, c := range language.ClustersOf(b.Bundle) {
		known = append(known, c.ID)
	}
	hint := "declare it below clusters:"
	if near := diag.Suggest(id, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	b.Errorf(v.Span, rules.Body, hint, "no cluster %q is declared", id)
}

// CheckBody checks what the tags of [Observe] cannot express.
func (*Observe) CheckBody(b *tree.Body) { checkCluster(b) }

// Handle implements [engine.Handler].
func (h *Observe) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	cluster, err := clusterOf(c, h.Cluster)
	if err != nil {
		return model.Result{}, err
	}
	assignment, err := clusters.ReadAssignment(ctx, c.Documents, cluster.ID)
	if err != nil {
		return model.Result{}, err
	}
	client := h.client(c)
	o := begin(ctx, c, client, cluster, &assignment)
	ask(ctx, c, client, cluster, o)
	return pass(ctx, c, partObservation, o, reference{Cluster: o.Cluster, At: o.At, Version: o.Version})
}

// begin makes an observation of all known workers, before they are asked.
func begin(
	ctx context.Context, c *engine.Call, client *http.Client, cluster *language.Cluster, a *clusters.Assignment,
) *Observation {
	o := &Observation{
		Cluster: cluster.ID, At: float64(c.Now.UnixMilli()) / 1000, Version: a.Version,
		Owners: make([]int, cluster.Partitions), Weights: make([]*float64, cluster.Partitions),
	}
	for p := range o.Owners {
		o.Owners[p] = -1
		if p < len(a.Owners) {
			o.Owners[p] = a.Owners[p]
		}
	}
	places := map[string]int{}
	for i, w := range a.Workers {
		places[w.ID] = i
		o.Workers = append(o.Workers, Observed{AssignedWorker: w})
	}
	members, err := discover(ctx, client, cluster)
	if err != nil {
		c.Log.Warn("workers cannot be discovered, those of the last time count", "cluster", cluster.ID, "error", err)
		for i := range o.Workers {
			o.Workers[i].Listed = true
		}
		return o
	}
	for _, m := range members {
		w := Observed{AssignedWorker: clusters.AssignedWorker{ID: m.ID, URL: m.URL, Zone: m.Zone, Capacity: m.Capacity}, Listed: true}
		if i, known := places[m.ID]; known {
			o.Workers[i] = w
			continue
		}
		places[m.ID] = len(o.Workers)
		o.Workers = append(o.Workers, w)
	}
	return o
}

// These bound the replies of workers and registries.
const (
	maxReport  = 8 << 20
	maxWorkers = 10_000
)

// discover lists the declared workers, or asks a registry.
func discover(ctx context.Context, client *http.Client, cluster *language.Cluster) ([]language.ClusterWorker, error) {
	d := cluster.Discover
	if d == nil {
		return cluster.Members(), nil
	}
	ctx, cancel := clock.WithTimeout(ctx, d.Timeout)
	defer cancel()
	body, err := get(ctx, client, d.URL)
	if err != nil {
		return nil, err
	}
	var listed []struct {
		ID, URL, Zone string
		Capacity      float64
	}
	var wrapped struct{ Workers json.RawMessage }
	if json.Unmarshal(body, &wrapped) == nil && wrapped.Workers != nil {
		body = wrapped.Workers
	}
	if err := json.Unmarshal(body, &listed); err != nil {
		return nil, fmt.Errorf("want a list of workers from %s: %w", d.URL, err)
	}
	if len(listed) == 0 || len(listed) > maxWorkers {
		return nil, fmt.Errorf("want 1 to %d workers from %s, have %d", maxWorkers, d.URL, len(listed))
	}
	seen := map[string]bool{}
	var out []language.ClusterWorker
	for _, w := range listed {
		_, err := urls.ParsePublic(w.URL)
		if w.ID == "" || seen[w.ID] || err != nil || tooMuch(w.Capacity) {
			// Its url is not shown, because it may contain a password.
			return nil, fmt.Errorf("want workers with ids of their own, urls and capacities from 0 from %s, not as worker %q has "+
				"them", d.URL, w.ID)
		}
		seen[w.ID] = true
		out = append(out, language.ClusterWorker{ID: w.ID, URL: w.URL, Zone: w.Zone, Capacity: w.Capacity})
	}
	return out, nil
}

// get reads the body of a reply with status 200.
func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, maxReport+1))
	switch {
	case err != nil:
		return nil, err
	case reply.StatusCode != http.StatusOK:
		return nil, &model.StatusError{Status: reply.StatusCode, Method: http.MethodGet, URL: address}
	case len(body) > maxReport:
		return nil, fmt.Errorf("reply of %s is longer than %d bytes", address, maxReport)
	}
	return body, nil
}

// ask adds the workers' reports to the observation.
func ask(ctx context.Context, c *engine.Call, client *http.Client, cluster *language.Cluster, o *Observation) {
	told := make([]map[int]float64, len(o.Workers))
	var wait sync.WaitGroup
	for i := range o.Workers {
		w := &o.Workers[i]
		if !w.Listed {
			w.Problem = "is no worker of the cluster any more"
			continue
		}
		wait.Go(func() { told[i] = examine(ctx, c, client, cluster, w) })
	}
	wait.Wait()
	askAgain(ctx, c, client, cluster, o, told)
	for i, counts := range told {
		for p, x := range counts {
			// A worker's report about a partition of another one does not count, unless no worker
			// has it.
			if o.Owners[p] == i || o.Owners[p] < 0 {
				x = round(x)
				o.Weights[p] = &x
			}
		}
	}
	for p, w := range o.Owners {
		if w >= 0 && o.Workers[w].Requests != nil && told[w] != nil && o.Weights[p] == nil {
			o.Weights[p] = new(float64) // it reported others, so this one had no requests
		}
	}
}

// longestPause is the longest pause before a silent worker is asked again.
const longestPause = 500 * time.Millisecond

// refusals is how often a worker whose address refuses connections is asked again, because a
// restarting process is back soon.
const refusals = 2

// askAgain asks workers again that have just become silent, as often as a policy would otherwise
// wait for further reports. Their late answers count.
func askAgain(
	ctx context.Context, c *engine.Call, client *http.Client, cluster *language.Cluster, o *Observation, told []map[int]float64,
) {
	rounds := max(1, missesLeast-leastConfirmations(cluster.Step.Seconds()))
	again := func(w *Observed, round int) bool {
		return w.Listed && !w.Up && (round < rounds || w.Gone && round < refusals)
	}
	if !slices.ContainsFunc(o.Workers, func(w Observed) bool { return again(&w, 0) }) {
		return
	}
	state, _, err := clusters.ReadClusterState(ctx, c.Documents, cluster.ID)
	if err != nil {
		c.Log.Warn("silent workers are not asked again", "cluster", cluster.ID, "error", err)
		return
	}
	known := map[string]bool{} // silent already
	for _, w := range state.Workers {
		known[w.ID] = !w.Up
	}
	most := cluster.Step / 2 // the rest of the step is for the decision and its effects
	if end, limited := ctx.Deadline(); limited {
		most = min(most, time.Until(end)/2)
	}
	ctx, cancel := clock.WithTimeout(ctx, most)
	defer cancel()
	for round := range max(rounds, refusals) {
		if !slices.ContainsFunc(o.Workers, func(w Observed) bool { return again(&w, round) && !known[w.ID] }) {
			return // nobody waits for workers that are known to be silent
		}
		if clock.Sleep(ctx, min(cluster.Step/5, longestPause)) != nil {
			return
		}
		var wait sync.WaitGroup
		for i := range o.Workers {
			if w := &o.Workers[i]; again(w, round) && !known[w.ID] {
				wait.Go(func() {
					now := Observed{AssignedWorker: w.AssignedWorker, Listed: true}
					if counts := examine(ctx, c, client, cluster, &now); now.Up {
						told[i], *w = counts, now
						return
					}
					w.Misses = max(w.Misses, 1) + 1
					if ctx.Err() == nil {
						w.Gone = now.Gone
					}
				})
			}
		}
		wait.Wait()
	}
}

// examine asks one worker, and returns its requests per second by partition.
func examine(
	ctx context.Context, c *engine.Call, client *http.Client, cluster *language.Cluster, w *Observed,
) map[int]float64 {
	address := func(path string) string {
		return strings.TrimSuffix(w.URL, "/") + strings.ReplaceAll(path, "{id}", url.PathEscape(w.ID))
	}
	once := func(path string) ([]byte, error) {
		ctx, cancel := clock.WithTimeout(ctx, cluster.Healthcheck.Timeout)
		defer cancel()
		return get(ctx, client, address(path))
	}
	body, err := once(cluster.Healthcheck.Path)
	if err == nil {
		counts, problem := w.believe(body, cluster.Partitions)
		if problem == "" {
			w.Up = true
			return counts
		}
		err = errors.New(problem)
	} else if _, ok := errors.AsType[*model.StatusError](err); !ok {
		w.Problem, w.Gone = c.Hide(err.Error()), errors.Is(err, syscall.ECONNREFUSED)
		return nil
	}
	w.Problem = c.Hide(err.Error())
	if _, pinged := once(cluster.Healthcheck.Ping); pinged == nil {
		w.Up = true
	}
	return nil
}

// A healthReport is the answer to the extended healthcheck.
type healthReport struct {
	Requests   *float64           `json:"requests"`
	Drops      *float64           `json:"drops"`
	Busy       *float64           `json:"busy"`
	Age        *float64           `json:"age_s"`
	Window     *float64           `json:"window_s"`
	Draining   bool               `json:"draining"`
	Partitions map[string]float64 `json:"partitions"`
}

// tooMuch reports whether a number cannot be a count, a time or a capacity.
func tooMuch(x float64) bool { return !(x >= 0) || x > most }

// believe takes a report, unless it contains nonsense.
func (w *Observed) believe(body []byte, partitions int) (counts map[int]float64, problem string) {
	var r healthReport
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, "its report is not understood: " + err.Error()
	}
	window := 1.0
	for _, f := range []struct {
		name  string
		value *float64
	}{{"requests", r.Requests}, {"drops", r.Drops}, {"age_s", r.Age}, {"window_s", r.Window}, {"busy", r.Busy}} {
		if f.value != nil && tooMuch(*f.value) {
			return nil, fmt.Sprintf("its report is not believed: %s is %v", f.name, *f.value)
		}
	}
	if r.Window != nil {
		window = *r.Window
		if window < 1e-3 {
			return nil, fmt.Sprintf("its report is not believed: window_s is %v", window)
		}
	}
	if r.Busy != nil && *r.Busy > 1.5 { // clocks are not exact
		return nil, fmt.Sprintf("its report is not believed: busy is %v", *r.Busy)
	}
	if r.Partitions != nil {
		counts = make(map[int]float64, len(r.Partitions))
	}
	for name, x := range r.Partitions {
		p, err := strconv.Atoi(name)
		if err != nil || p < 0 || p >= partitions {
			return nil, fmt.Sprintf("its report is not believed: there is no partition %q", name)
		}
		if tooMuch(x) {
			return nil, fmt.Sprintf("its report is not believed: partition %d has %v requests", p, x)
		}
		counts[p] = x / window
	}
	rate := func(x *float64, per float64) *float64 {
		if x == nil {
			return nil
		}
		y := round(*x / per)
		return &y
	}
	w.Requests = rate(r.Requests, window)
	w.Drops = rate(r.Drops, window)
	w.Age = rate(r.Age, 1)
	w.Draining = r.Draining
	w.Busy = rate(r.Busy, 1)
	if w.Busy != nil {
		*w.Busy = min(*w.Busy, 1)
	}
	return counts, ""
}

// round rounds a number, because observations are stored by the hundred.
func round(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	short, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 6, 64), 64)
	return short
}

// timeOf returns the time of an observation.
func timeOf(at float64) time.Time { return time.UnixMilli(int64(math.Round(at * 1000))).UTC() }
