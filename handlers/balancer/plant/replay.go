package plant

import (
	"math"
	"slices"

	"procaas/handlers/balancer"
	"procaas/handlers/balancer/clusters"
)

// asRecorded is the name of what really happened, among the policies.
const asRecorded = "recorded"

// A Replayed compares what policies would have made of a recording.
type Replayed struct {
	Cluster      string  `json:"cluster"`
	Policy       string  `json:"policy"` // the one that decided during the recording
	From         float64 `json:"from"`   // Unix seconds
	To           float64 `json:"to"`
	Observations int     `json:"observations"`
	Measured     float64 `json:"measured_drop_fraction"` // as reported by workers

	// Known reports whether the workers or the cluster's description show capacities. Otherwise
	// drops and utilization are unknown.
	Known bool `json:"capacities_known"`

	Notes    []string  `json:"notes"`
	Policies []Outcome `json:"policies"` // what really happened comes first
}

// An Outcome is what a policy would have made of it. Drops and utilization are estimates. They are
// null if capacities are unknown.
type Outcome struct {
	Policy       string   `json:"policy"`
	Moves        int      `json:"moves"`
	Oscillations int      `json:"oscillations"` // moves back to a worker within ten minutes
	Drops        *float64 `json:"estimated_drop_fraction"`
	Worst        *float64 `json:"predicted_worst_utilisation"`
	Hottest      *float64 `json:"predicted_mean_hottest_utilisation"`
	Gini         float64  `json:"mean_gini"`
	Last         float64  `json:"last_gini"`
	Moved        []Moved  `json:"moved"`
	Samples      []Moment `json:"samples,omitempty"` // one per observation
}

// A Moved is one move.
type Moved struct {
	After     float64 `json:"after_s"` // seconds since the start of the recording
	Partition int     `json:"partition"`
	From      string  `json:"from"`
	To        string  `json:"to"`
	Reason    string  `json:"reason,omitempty"`
}

// A Moment is one observation with a policy.
type Moment struct {
	After   float64  `json:"after_s"`
	Gini    float64  `json:"gini"`
	Drops   *float64 `json:"estimated_drop_fraction"`
	Hottest *float64 `json:"predicted_hottest_utilisation"`
	Moves   int      `json:"moves"`
}

// Replay lets each policy decide about the observations, starting with the first assignment of the
// recording. It computes what workers would have reported from the recorded weights of partitions
// and from the capacities that workers have shown.
func (r *Recording) Replay(policies []string) (*Replayed, error) {
	first, last := &r.seen[0], &r.seen[len(r.seen)-1]
	out := &Replayed{
		Cluster: r.about.Cluster, Policy: r.about.Policy, From: first.At, To: last.At, Observations: len(r.seen), Measured: r.measured(),
	}
	c := r.capacities()
	out.Known = c.known
	out.Notes = append(out.Notes, "drops and utilisation under other assignments are estimated: from the recorded weights of "+
		"partitions and what "+c.source)
	out.Notes = append(out.Notes, "cold caches and hand-offs after moves are not in it; bans and drains hold as they did, pins and "+
		"freezes do not")
	dead := r.dead()
	recorded := newGauge(r, c, dead, asRecorded)
	for i := range r.seen {
		recorded.follow(i)
		recorded.measure(i)
	}
	out.Policies = append(out.Policies, recorded.outcome())
	for _, policy := range policies {
		g := newGauge(r, c, dead, policy)
		live, err := balancer.Rehearse(&r.about, policy, r.Params, r.allowed, &r.seen[0])
		if err != nil {
			return nil, err
		}
		for i := range r.seen {
			o := g.measure(i)
			g.apply(i, live.Decide(o, leversOf(o)).Moves)
		}
		out.Policies = append(out.Policies, g.outcome())
	}
	return out, nil
}

// leversOf returns the levers of an observation.
func leversOf(o *balancer.Observation) clusters.Levers {
	l := clusters.Levers{Banned: map[string]clusters.Lever{}, Draining: map[string]clusters.Lever{}}
	for _, id := range o.Banned {
		l.Banned[id] = clusters.Lever{Worker: id, Reason: "as it was recorded"}
	}
	for _, id := range o.Draining {
		l.Draining[id] = clusters.Lever{Worker: id, Reason: "as it was recorded"}
	}
	return l
}

// mostTold bounds a count. A larger one is nonsense, and sums with it would lose all others.
const mostTold = 1e12

// told returns a count that may be missing or nonsense.
func told(x *float64) float64 {
	if x == nil || !(*x > 0) {
		return 0
	}
	return min(*x, mostTold)
}

// measured returns the share of requests that workers reported as dropped.
func (r *Recording) measured() float64 {
	served, dropped := 0.0, 0.0
	for i := range r.seen {
		for _, w := range r.seen[i].Workers {
			if w.Up {
				served += told(w.Requests) * r.length(i)
				dropped += told(w.Drops) * r.length(i)
			}
		}
	}
	if dropped == 0 {
		return 0
	}
	return dropped / (served + dropped)
}

// length returns how long an observation counts, in seconds. A gap, such as between two recordings,
// counts little.
func (r *Recording) length(i int) float64 {
	if i+1 == len(r.seen) {
		return r.about.Step
	}
	return min(r.seen[i+1].At-r.seen[i].At, 10*r.about.Step)
}

// silences is how many observations in a row a worker must be silent to have served nothing. A
// single lost healthcheck drops no requests.
const silences = 3

// dead returns for each observation which workers served nothing.
func (r *Recording) dead() [][]bool {
	out := make([][]bool, len(r.seen))
	for i := range out {
		out[i] = make([]bool, len(r.workers))
	}
	for w := range r.workers {
		for i := 0; i < len(r.seen); {
			j := i
			for j < len(r.seen) && !r.seen[j].Workers[w].Up {
				j++
			}
			for k := i; j-i >= silences && k < j; k++ {
				out[k][w] = true
			}
			i = max(j, i+1)
		}
	}
	return out
}

// A gauge follows the assignment of one policy.
type gauge struct {
	r      *Recording
	c      *capacities
	dead   [][]bool
	owners []int
	homes  [][]home // of each partition, its recent workers
	out    Outcome

	offered, dropped, hottest, gini, time float64
	worst                                 float64
}

func newGauge(r *Recording, c *capacities, dead [][]bool, policy string) *gauge {
	return &gauge{
		r: r, c: c, dead: dead, owners: slices.Clone(r.seen[0].Owners), homes: make([][]home, r.about.Partitions),
		out: Outcome{Policy: policy, Moved: []Moved{}},
	}
}

// follow applies the recorded assignment.
func (g *gauge) follow(i int) {
	for p, to := range g.r.seen[i].Owners {
		if to >= 0 {
			g.move(i, p, to, "")
		} else {
			g.owners[p] = to
		}
	}
}

// apply applies the moves of a policy.
func (g *gauge) apply(i int, moves []balancer.Decided) {
	for _, m := range moves {
		to := slices.IndexFunc(g.r.workers, func(w clusters.AssignedWorker) bool { return w.ID == m.To })
		if g.move(i, m.Partition, to, m.Reason) {
			g.out.Samples[i].Moves++
		}
	}
}

// move records a move. The first place of a partition is not a move.
func (g *gauge) move(i, p, to int, reason string) bool {
	from, at := g.owners[p], g.r.seen[i].At
	g.owners[p] = to
	if from < 0 || from == to {
		return false
	}
	g.homes[p] = slices.DeleteFunc(g.homes[p], func(h home) bool { return h.left <= at-returnWithin })
	if slices.ContainsFunc(g.homes[p], func(h home) bool { return h.worker == to }) {
		g.out.Oscillations++
	}
	g.homes[p] = append(g.homes[p], home{from, at})
	g.out.Moves++
	g.out.Moved = append(g.out.Moved, Moved{g.after(i), p, g.r.workers[from].ID, g.r.workers[to].ID, reason})
	return true
}

func (g *gauge) after(i int) float64 {
	return math.Round(1000*(g.r.seen[i].At-g.r.seen[0].At)) / 1000
}

// measure returns what would have been observed, and records it.
func (g *gauge) measure(i int) *balancer.Observation {
	o := g.r.seen[i]
	o.Owners, o.Workers, o.Weights = slices.Clone(g.owners), slices.Clone(o.Workers), slices.Clone(o.Weights)
	load := make([]float64, len(o.Workers))
	offered, dropped := 0.0, 0.0
	for p, w := range g.owners {
		x := told(o.Weights[p])
		offered += x
		if w >= 0 {
			load[w] += x
		} else {
			dropped += x
		}
		if w < 0 || !o.Workers[w].Up || o.Workers[w].Requests == nil {
			o.Weights[p] = nil // nobody would have reported it
		}
	}
	hottest := 0.0
	var living []float64
	for w := range o.Workers {
		x := &o.Workers[w]
		if g.dead[i][w] {
			dropped += load[w]
			continue
		}
		if x.Up && !slices.Contains(o.Banned, x.ID) {
			living = append(living, load[w])
		}
		served, busy := load[w], (*float64)(nil)
		if can := g.c.of[i][w]; can > 0 {
			served = min(load[w], can)
			hottest = max(hottest, load[w]/can)
			share := served / can
			busy = &share
		}
		refused := load[w] - served
		dropped += refused
		if x.Up && x.Requests != nil {
			x.Requests, x.Drops, x.Busy = &served, &refused, busy
		}
	}
	g.note(i, offered, dropped, hottest, balancer.Gini(living))
	return &o
}

// note adds a moment to the sums.
func (g *gauge) note(i int, offered, dropped, hottest, gini float64) {
	dt := g.r.length(i)
	m := Moment{After: g.after(i), Gini: gini}
	if g.c.known {
		share := 0.0
		if offered > 0 {
			share = dropped / offered
		}
		m.Drops, m.Hottest = &share, &hottest
	}
	for k := len(g.out.Moved) - 1; g.out.Policy == asRecorded && k >= 0 && g.out.Moved[k].After == m.After; k-- {
		m.Moves++
	}
	g.out.Samples = append(g.out.Samples, m)
	g.offered += offered * dt
	g.dropped += dropped * dt
	g.hottest += hottest * dt
	g.gini += gini * dt
	g.time += dt
	g.worst = max(g.worst, hottest)
	g.out.Last = gini
}

func (g *gauge) outcome() Outcome {
	o := g.out
	o.Gini = g.gini / g.time
	if !g.c.known {
		return o
	}
	drops, mean := 0.0, g.hottest/g.time
	if g.offered > 0 {
		drops = g.dropped / g.offered
	}
	o.Drops, o.Worst, o.Hottest = &drops, &g.worst, &mean
	return o
}
