package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"procaas/engine/intake"
	"procaas/engine/model"
)

// An entry is a contestant by name.
type entry struct {
	name string
	open func(context.Context, *bench) (contestant, error)
	contestant
}

// contestants are all that can be compared, in the order of the tables.
func contestants() []*entry {
	return []*entry{
		{name: "naive", open: openNaive},
		{name: "grouped", open: openGrouped},
		{name: "procaas", open: openBinary},
		{name: "in process", open: openProcaas("plain", plain)},
		{name: "in process, ids and keys", open: openProcaas("keyed", keyed)},
	}
}

func contestantNames() []string {
	var names []string
	for _, e := range contestants() {
		names = append(names, e.name)
	}
	return names
}

// enter opens the contestants, or those that were asked for.
func (b *bench) enter(ctx context.Context) ([]*entry, error) {
	all := contestants()
	if b.match != nil {
		all = slices.DeleteFunc(all, func(e *entry) bool { return !slices.Contains(b.match, e.name) })
	}
	for i, e := range all {
		var err error
		if e.contestant, err = e.open(ctx, b); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", e.name, err), leave(all[:i]))
		}
	}
	return all, nil
}

func leave(all []*entry) (err error) {
	for _, e := range all {
		err = errors.Join(err, e.close())
	}
	return err
}

// A sample is what one contestant did in one round.
type sample struct {
	rate      float64 // flows, or events, in a second
	server    time.Duration
	own       time.Duration // both: processor time of one flow
	latencies []time.Duration
}

// measureFlows compares how many flows get done.
func measureFlows(ctx context.Context, b *bench) (err error) {
	all, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(all)) }()
	for _, target := range []struct {
		inFlight       int
		naive, grouped float64 // shares of what the programs by hand do
	}{{64, 1.2, 0.48}, {256, 1.5, 0.55}} {
		samples := map[string][]sample{}
		for round := range b.rounds + 1 {
			for _, e := range all {
				if err := b.server.settle(ctx); err != nil {
					return err
				}
				flows := b.flows
				if round == 0 {
					flows /= 4 // to warm up, not counted
				}
				s, err := b.saturate(ctx, e, flows, target.inFlight, fmt.Sprint(target.inFlight, "-", round))
				if err != nil {
					return fmt.Errorf("%s: %w", e.name, err)
				}
				if round > 0 {
					samples[e.name] = append(samples[e.name], s)
				}
			}
		}
		fmt.Fprintf(b.out, "%d flows of %d steps, %d in flight, median of %d rounds (lowest to highest)\n", b.flows, steps, target.inFlight,
			b.rounds)
		b.printFlows(all, samples)
		b.verdict("flows/s, of naive", ratios(samples["procaas"], samples["naive"]), target.naive, true)
		b.verdict("flows/s, of grouped", ratios(samples["procaas"], samples["grouped"]), target.grouped, true)
	}
	return nil
}

// saturate keeps a number of flows under way until all are done.
func (b *bench) saturate(ctx context.Context, c contestant, flows, inFlight int, prefix string) (sample, error) {
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	ids := make([]string, flows)
	began, server, own := time.Now(), b.server.cpu(), c.cpu()
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, "-", i)
		g.Go(func() error { return c.flow(running, ids[i]) })
	}
	err := g.Wait()
	if err == nil {
		err = c.durable(ctx, ids)
	}
	took, each := time.Since(began), time.Duration(flows)
	return sample{
		rate:   float64(flows) / took.Seconds(),
		server: (b.server.cpu() - server) / each, own: (c.cpu() - own) / each,
	}, err
}

func (b *bench) printFlows(all []*entry, samples map[string][]sample) {
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tflows/s\t\tPostgreSQL µs/flow\town µs/flow\tof naive\tof grouped\t")
	for _, e := range all {
		got := samples[e.name]
		rate := medianOf(got, sample.getRate)
		low, high := rangeOf(got, sample.getRate)
		fmt.Fprintf(w, "%s\t%.0f\t(%.0f to %.0f)\t%.0f\t%.0f\t%s\t%s\t\n", e.name, rate, low, high,
			medianOf(got, sample.getServer), medianOf(got, sample.getOwn),
			ratio(got, samples["naive"]), ratio(got, samples["grouped"]))
	}
	w.Flush()
}

// measureLatency compares how long a flow takes when there is little to do.
func measureLatency(ctx context.Context, b *bench) (err error) {
	const rate = 50
	all, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(all)) }()
	samples := map[string][]sample{}
	for round := range b.rounds {
		for _, e := range all {
			latencies, err := pace(ctx, rate, b.span, func(ctx context.Context, i int) error {
				id := fmt.Sprint("paced-", round, "-", i)
				if err := e.flow(ctx, id); err != nil {
					return err
				}
				return e.durable(ctx, []string{id})
			})
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			samples[e.name] = append(samples[e.name], sample{latencies: latencies})
		}
	}
	fmt.Fprintf(b.out, "latency of a flow at %d flows/s, median of %d rounds of %s\n", rate, b.rounds, b.span)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tp50 ms\tp99 ms\tp50 of naive\t")
	for _, e := range all {
		got := samples[e.name]
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", e.name, medianOf(got, sample.p50), medianOf(got, sample.p99),
			ratioBy(got, samples["naive"], sample.p50))
	}
	w.Flush()
	if p := samples["procaas"]; len(p) > 0 {
		b.verdict("p50 at low load, of naive", ratiosBy(p, samples["naive"], sample.p50), 1.5, false)
	}
	return nil
}

// pace starts calls at a fixed rate, whether earlier ones have ended or not, and
// returns how long each took from the moment at which it should have started.
func pace(ctx context.Context, rate float64, span time.Duration, do func(ctx context.Context, i int) error) ([]time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex // guards latencies
	var latencies []time.Duration
	gap := time.Duration(float64(time.Second) / rate)
	began := time.Now()
	for i := 0; time.Duration(i)*gap < span && ctx.Err() == nil; i++ {
		due := began.Add(time.Duration(i) * gap)
		time.Sleep(time.Until(due))
		g.Go(func() error {
			err := do(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, time.Since(due))
			return err
		})
	}
	err := g.Wait()
	slices.Sort(latencies)
	return latencies, err
}

func (s sample) getRate() float64   { return s.rate }
func (s sample) getServer() float64 { return float64(s.server) / float64(time.Microsecond) }
func (s sample) getOwn() float64    { return float64(s.own) / float64(time.Microsecond) }
func (s sample) p50() float64       { return quantile(s.latencies, 0.5) }
func (s sample) p99() float64       { return quantile(s.latencies, 0.99) }

// quantile returns a quantile of sorted latencies in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i]) / float64(time.Millisecond)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func collect(samples []sample, get func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = get(s)
	}
	return values
}

func medianOf(samples []sample, get func(sample) float64) float64 {
	return median(collect(samples, get))
}

func rangeOf(samples []sample, get func(sample) float64) (low, high float64) {
	values := collect(samples, get)
	return slices.Min(values), slices.Max(values)
}

// ratiosBy compares round by round: what disturbed one round disturbed both.
func ratiosBy(of, to []sample, get func(sample) float64) []float64 {
	var values []float64
	for i := range min(len(of), len(to)) {
		values = append(values, get(of[i])/get(to[i]))
	}
	return values
}

func ratios(of, to []sample) []float64 { return ratiosBy(of, to, sample.getRate) }

func ratio(of, to []sample) string { return ratioBy(of, to, sample.getRate) }

func ratioBy(of, to []sample, get func(sample) float64) string {
	if len(to) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", median(ratiosBy(of, to, get)))
}

// verdict says whether a target is met.
func (b *bench) verdict(what string, ratios []float64, target float64, atLeast bool) {
	if len(ratios) == 0 {
		return
	}
	b.judge(what, median(ratios), target, atLeast)
}

func (b *bench) judge(what string, have, target float64, atLeast bool) {
	sign, met := "≤", have <= target
	if atLeast {
		sign, met = "≥", have >= target
	}
	word := "MISSED"
	if met {
		word = "met"
	}
	fmt.Fprintf(b.out, "target %s %s %g: %s, have %.2f\n", what, sign, target, word, have)
}

// submissions makes a batch of events that nothing serves before long.
func submissions(n int, event func(i int) model.Event) []intake.Submission {
	out := make([]intake.Submission, n)
	for i := range out {
		out[i].Event = event(i)
	}
	return out
}
