package balancer

import (
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/handlers/balancer/clusters"
	"procaas/handlers/balancer/language"
)

// A Live follows one cluster through its observations. It does no I/O: the same observations give
// the same decisions on every node.
type Live struct {
	cluster *language.Cluster
	members []Observed // the workers that the policy knows, in order
	allowed [][]int
	policy  Policy
	silent  []int   // of each worker: observations in a row in which it did not answer
	crowd   int     // observations in a row with half of the cluster silent, and no proof that its processes have ended
	at      float64 // time of the last one
}

// NewLive starts with an observation, without deciding about it.
func NewLive(c *language.Cluster, o *Observation) (*Live, error) {
	if err := o.check(c); err != nil {
		return nil, err
	}
	allowed := make([][]int, c.Partitions)
	members, places := o.members()
	for p, holders := range language.Holders(c, members) {
		for _, i := range holders {
			allowed[p] = append(allowed[p], places[i])
		}
	}
	return newLive(c, allowed, paramsOf(c), o)
}

// Rehearse starts with an observation of a recording. allowed has the indexes of the workers that
// may hold each partition.
func Rehearse(r *clusters.Recording, policy string, params Params, allowed [][]int, o *Observation) (*Live, error) {
	c := &language.Cluster{ID: r.Cluster, Partitions: r.Partitions, Policy: policy, Step: time.Duration(r.Step * float64(time.Second))}
	if err := o.check(c); err != nil {
		return nil, err
	}
	return newLive(c, allowed, params, o)
}

func newLive(c *language.Cluster, allowed [][]int, params Params, o *Observation) (*Live, error) {
	l := &Live{cluster: c, members: slices.Clone(o.Workers), allowed: allowed, silent: make([]int, len(o.Workers)), at: math.Inf(-1)}
	if len(o.Workers) == 0 {
		return l, nil // no worker is known yet
	}
	about := Cluster{
		Seed: seedOf(c.ID), Workers: len(o.Workers), Partitions: c.Partitions, Allowed: l.allowed, Step: c.Step.Seconds(),
		Assignment: o.report(l.allowed).Assignment,
	}
	zones := map[string]int{}
	for _, w := range o.Workers {
		if _, known := zones[w.Zone]; !known {
			zones[w.Zone] = len(zones)
		}
		about.Zone, about.Capacity = append(about.Zone, zones[w.Zone]), append(about.Capacity, w.Capacity)
	}
	var err error
	l.policy, err = New(c.Policy, about, params)
	return l, err
}

// seedOf makes the random choices of policies differ between clusters.
func seedOf(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// knows reports whether an observation has the same workers.
func (l *Live) knows(o *Observation) bool {
	return slices.EqualFunc(l.members, o.Workers, func(a, b Observed) bool {
		return a.ID == b.ID && a.Zone == b.Zone && a.Capacity == b.Capacity && a.Listed == b.Listed
	})
}

// A Decision is the result of an observation: the response of balancer.decide.
type Decision struct {
	Cluster string                    `json:"cluster"`
	At      float64                   `json:"t"`
	Version int64                     `json:"version"` // of the assignment that it is based on
	Skipped string                    `json:"skipped,omitempty"`
	Moves   []Decided                 `json:"moves"`
	Would   []Decided                 `json:"would,omitempty"` // moves that a dry run does not make
	Workers []clusters.AssignedWorker `json:"workers"`
	Alerts  []string                  `json:"alerts,omitempty"`

	// Unserved counts the partitions whose workers do not answer, and which no other worker can take.
	Unserved int `json:"unserved,omitempty"`

	// Banned and Draining are the workers that levers name.
	Banned   []string `json:"banned,omitempty"`
	Draining []string `json:"draining,omitempty"`
}

// A Decided is one move.
type Decided struct {
	Partition int    `json:"partition"`
	From      string `json:"from,omitempty"`
	To        string `json:"to"`
	Reason    string `json:"reason"`
}

// Tell adds the levers to an observation.
func (o *Observation) Tell(levers clusters.Levers) {
	o.Banned, o.Draining = nil, nil
	for _, w := range o.Workers {
		if has(levers.Banned, w.ID) {
			o.Banned = append(o.Banned, w.ID)
		}
		if has(levers.Draining, w.ID) || w.Zone != "" && has(levers.Zones, w.Zone) {
			o.Draining = append(o.Draining, w.ID)
		}
	}
}

// Follow takes an observation about which an earlier decision was made.
func (l *Live) Follow(o *Observation) {
	l.at = o.At
	l.crowded(o)
	if l.policy != nil {
		l.inherit(true)
		l.policy.Decide(o.report(l.allowed))
	}
}

// inherit tells v5 that another node has made the moves.
func (l *Live) inherit(heir bool) {
	if e, ok := l.policy.(*controller); ok {
		e.replaying = heir
	}
}

// crowded counts for how long half of the cluster has been silent, and reports whether it is.
func (l *Live) crowded(o *Observation) bool {
	listed, silent := 0, 0
	for i, w := range o.Workers {
		l.silent[i]++
		if w.Up {
			l.silent[i] = 0
		}
		if !w.Listed {
			continue
		}
		listed++
		if !w.Up && !w.Gone {
			silent++
		}
	}
	if !crowded(silent, listed) {
		l.crowd = 0
		return false
	}
	l.crowd++
	return true
}

// Decide decides about an observation with its levers.
func (l *Live) Decide(o *Observation, levers clusters.Levers) Decision {
	d := Decision{
		Cluster: o.Cluster, At: o.At, Version: o.Version, Moves: []Decided{}, Workers: o.assigned(), Banned: o.Banned, Draining: o.Draining,
	}
	if o.At-l.at < l.cluster.Step.Seconds()/2 {
		d.Skipped = fmt.Sprintf("only %.3g s after the last observation", o.At-l.at)
		return d
	}
	l.at = o.At
	if l.policy == nil {
		d.Alerts = []string{"no worker of the cluster is known"}
		return d
	}
	r := o.report(l.allowed)
	r.Evacuate = levers.Evacuate != nil
	s := newPilot(o, l.allowed, r, levers)
	evacuate := 0
	if l.crowded(o) {
		for i, w := range o.Workers {
			s.silent[i] = w.Listed && !w.Up && !w.Gone && levers.Evacuate == nil
		}
		if l.crowd > crowdConfirmations(l.cluster.Step.Seconds()) {
			evacuate = int(math.Ceil(evacuated * float64(len(o.Owners))))
		}
	}
	s.must()
	if _, drains := l.policy.(*controller); !drains {
		s.drain(o.Draining)
	}
	wanted := l.policy.Decide(r)
	l.inherit(false)
	s.may(wanted, evacuate)
	moves := make([]Decided, len(s.moves))
	for i, m := range s.moves {
		moves[i] = Decided{Partition: m.Partition, To: o.Workers[m.To].ID, Reason: l.name(m.Reason)}
		if from := o.Owners[m.Partition]; from >= 0 {
			moves[i].From = o.Workers[from].ID
		}
	}
	switch {
	case levers.Frozen != nil:
	case levers.DryRun != nil:
		d.Would = moves
	default:
		d.Moves = moves
	}
	d.Alerts = s.alerts(l.crowd, crowdConfirmations(l.cluster.Step.Seconds()))
	if text := l.unserved(s, &d); text != "" {
		d.Alerts = append(d.Alerts, text)
	}
	if v5, ok := l.policy.(*controller); ok {
		for i, w := range o.Workers {
			if v5.witness.distrusts(i, o.At) {
				d.Alerts = append(d.Alerts, fmt.Sprintf("worker %s reports drops that do not fit its other counts: they do not count", w.ID))
			}
		}
	}
	return d
}

// unservedFrom is how many observations in a row a worker must be silent before its partitions count as
// unserved. A single healthcheck gets lost now and then.
const unservedFrom = 2

// unserved counts the partitions that nobody serves and nobody can take, and describes them.
func (l *Live) unserved(s *pilot, d *Decision) string {
	var first []string
	for p, owner := range s.owners {
		nobody := owner < 0 || l.silent[owner] >= unservedFrom
		if !nobody || slices.ContainsFunc(l.allowed[p], func(w int) bool { return s.report.Up[w] }) {
			continue
		}
		d.Unserved++
		if len(first) < 5 {
			first = append(first, strconv.Itoa(p))
		}
	}
	if d.Unserved == 0 {
		return ""
	}
	return fmt.Sprintf("%d partitions are served by nobody (%s), and none of the workers that may hold them is up: start one of these, or "+
		"let the map name more", d.Unserved, strings.Join(first, ", "))
}

// name replaces the numbers of workers, which policies use, by their ids.
func (l *Live) name(reason string) string {
	return workerNumber.ReplaceAllStringFunc(reason, func(text string) string {
		var i int
		if _, err := fmt.Sscanf(text, "worker %d", &i); err != nil || i >= len(l.members) {
			return text
		}
		return "worker " + l.members[i].ID
	})
}

// alerts returns what a person should look at.
func (s *pilot) alerts(crowd, ticks int) (out []string) {
	up, listed := 0, 0
	for i, w := range s.workers {
		if w.Listed {
			listed++
		}
		if s.report.Up[i] {
			up++
		}
	}
	switch {
	case up == 0:
		out = append(out, "no worker answers: the assignment is kept as it is")
	case crowd > 0:
		out = append(out, fmt.Sprintf("%d of %d workers answer: it may be the balancer that is cut off, so partitions stay for %d "+
			"observations, and move slowly then; if the workers have died, procaas balancer lever evacuate moves the partitions now",
			up, listed, ticks))
	}
	nobody, total := 0, 0.0
	most, heaviest := 0.0, 0
	for p, w := range s.owners {
		if w < 0 {
			nobody++
		}
		x := s.weight(p)
		total += x
		if x > most {
			most, heaviest = x, p
		}
	}
	if nobody > 0 {
		out = append(out, fmt.Sprintf("%d partitions have no worker: the map lets nobody hold them who is known", nobody))
	}
	if w := s.owners[heaviest]; w >= 0 && len(s.owners) > 1 && up > 1 {
		drops, requests := clean(s.report.Drops[w]), clean(s.report.Requests[w])
		if 2*most > s.load[w] && drops > 0.01*requests && s.load[w]-most < 0.1*s.load[w] {
			out = append(out, fmt.Sprintf("partition %d alone overloads worker %s: it is too hot for any move to help, divide it or give it a "+
				"larger worker",
				heaviest, s.workers[w].ID))
		}
	}
	return out
}

// workerNumber matches a policy's name of a worker.
var workerNumber = regexp.MustCompile(`\bworker \d+\b`)
