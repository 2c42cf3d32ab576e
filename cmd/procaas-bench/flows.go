package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// An opener opens a contestant.
type opener = func(context.Context, *bench) (contestant, error)

// An entry is a contestant with its name.
type entry struct {
	name     string
	ways     []way // the best one runs
	isBinary bool  // it measures the built binary, so -beside measures it twice
	contestant
	as string // name with the chosen way
}

// A way is one configuration of a contestant.
type way struct {
	name string
	open opener
}

func only(open opener) []way { return []way{{open: open}} }

// byConnections returns a way per number of connections to PostgreSQL.
func byConnections(open func(connections int) opener, numbers ...int) (ways []way) {
	for _, n := range numbers {
		ways = append(ways, way{fmt.Sprintf(", %d connections", n), open(n)})
	}
	return ways
}

// contestants returns all contestants, in the order of the tables.
func contestants() []*entry {
	return []*entry{
		{name: "naive", ways: byConnections(openNaive, 4, 8, 16, 32, 64)},
		{name: "grouped", ways: byConnections(openGrouped, 1, 2, 3, 4, 8)},
		{name: "procaas", ways: only(openBinary(onPostgres("built"))), isBinary: true},
		{name: "procaas, result awaited", ways: only(openAwaited), isBinary: true},
		{name: "procaas, ids and keys", ways: only(openKeyed), isBinary: true},
		{name: "procaas on SQLite", ways: only(openBinary(onSQLite)), isBinary: true},
		{name: "in process", ways: only(openProcaas("plain", plain))},
		{name: "in process, ids and keys", ways: only(openProcaas("keyed_inside", keyed))},
	}
}

// contestantNames are those of flows and latency, and those of queue-drain.
func contestantNames() []string {
	var names []string
	for _, e := range contestants() {
		names = append(names, e.name)
	}
	return append(names, drainNames()...)
}

// chosen returns the contestants that -contestants names, or all.
func (b *bench) chosen() []*entry {
	return slices.DeleteFunc(contestants(), func(e *entry) bool { return b.match != nil && !slices.Contains(b.match, e.name) })
}

// suffixBefore ends the names of contestants that measure the binary of -beside.
const suffixBefore = ", before"

// withBefore adds the same contestants with the binary of -beside, if there is one.
func (b *bench) withBefore(entries []*entry) (all []*entry) {
	for _, e := range entries {
		all = append(all, e)
		if b.beside == "" || !e.isBinary {
			continue
		}
		twin := &entry{name: e.name + suffixBefore}
		for _, w := range e.ways {
			twin.ways = append(twin.ways, way{w.name, func(ctx context.Context, b *bench) (contestant, error) { return w.open(ctx, b.before()) }})
		}
		all = append(all, twin)
	}
	return all
}

// enter opens contestants, each in the best way for that many flows in flight.
func (b *bench) enter(ctx context.Context, entries []*entry, inFlight int) ([]*entry, error) {
	all := b.withBefore(entries)
	for i, e := range all {
		if err := b.openBest(ctx, e, inFlight); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", e.name, err), leave(all[:i]))
		}
	}
	return all, nil
}

func (b *bench) openBest(ctx context.Context, e *entry, inFlight int) (err error) {
	w := e.ways[0]
	if len(e.ways) > 1 {
		if w, err = best(e.ways, func(w way) (s sample, err error) {
			c, err := w.open(ctx, b)
			if err != nil {
				return s, err
			}
			defer func() { err = errors.Join(err, c.close()) }()
			if err := b.server.settle(ctx); err != nil {
				return s, err
			}
			return b.saturate(ctx, c, b.short(), inFlight, "best")
		}); err != nil {
			return err
		}
	}
	e.as = e.name + w.name
	e.contestant, err = w.open(ctx, b)
	return err
}

// short is the number of flows in a round that does not count.
func (b *bench) short() int { return max(b.flows/4, 1) }

func leave(all []*entry) (err error) {
	for _, e := range all {
		err = errors.Join(err, e.close())
	}
	return err
}

// measureFlows compares the throughput of flows.
func measureFlows(ctx context.Context, b *bench) error {
	for _, target := range []struct {
		inFlight       int
		naive, grouped float64 // relative to the hand-written programs
	}{{64, 1.2, 0.48}, {256, 1.5, 0.55}} {
		lines, samples, err := b.contest(ctx, b.chosen(), target.inFlight)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "%d flows of %d steps, %d in flight, median of %d rounds (lowest to highest)\n", b.flows, steps, target.inFlight,
			b.rounds)
		b.compare("flows", lines, "of naive", "of grouped", "of before")
		b.verdict("flows/s, of naive", ratios(samples["procaas"], samples["naive"]), target.naive, true)
		b.verdict("flows/s, of grouped", ratios(samples["procaas"], samples["grouped"]), target.grouped, true)
	}
	return nil
}

// contest runs all rounds of all contestants.
func (b *bench) contest(ctx context.Context, entries []*entry, inFlight int) (lines []line, samples map[string][]sample, err error) {
	all, err := b.enter(ctx, entries, inFlight)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, leave(all)) }()
	samples = map[string][]sample{}
	for round := range b.rounds + 1 {
		for _, e := range all {
			if err := b.server.settle(ctx); err != nil {
				return nil, nil, err
			}
			flows := b.flows
			if round == 0 {
				flows = b.short() // to warm up, not counted
			}
			s, err := b.saturate(ctx, e, flows, inFlight, fmt.Sprint(inFlight, "-", round))
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", e.name, err)
			}
			if round > 0 {
				samples[e.name] = append(samples[e.name], s)
			}
		}
	}
	for _, e := range all {
		got := samples[e.name]
		lines = append(lines, line{e.as, got, []string{
			ratio(got, samples["naive"]), ratio(got, samples["grouped"]), ratio(got, samples[e.name+suffixBefore]),
		}})
		b.noteFlows(e.name, inFlight, samples)
	}
	return lines, samples, nil
}

// noteFlows keeps the figures of a contestant.
func (b *bench) noteFlows(contestant string, inFlight int, samples map[string][]sample) {
	got := samples[contestant]
	name, isBefore := strings.CutSuffix(contestant, suffixBefore)
	if isBefore {
		b = b.before()
	}
	prefix := fmt.Sprintf("%s, %d in flight: ", name, inFlight)
	b.note(prefix+"flows", "a second", collect(got, sample.getRate)...)
	b.note(prefix+"program", "µs", collect(got, sample.getOwn)...)
	b.note(prefix+"PostgreSQL", "µs", collect(got, sample.getServer)...)
	b.note(prefix+"log", "B", collect(got, sample.getLog)...)
	for _, other := range []string{"naive", "grouped"} {
		b.noteRatio(prefix+"flows of "+other, got, samples[other], sample.getRate)
		b.noteRatio(prefix+"processor time of "+other, got, samples[other], sample.getBoth)
	}
	if plain := samples[strings.Replace(contestant, name, "procaas", 1)]; strings.HasPrefix(name, "procaas,") || name == "procaas on SQLite" {
		b.noteRatio(prefix+"flows of procaas", got, plain, sample.getRate)
		b.noteRatio(prefix+"processor time of procaas", got, plain, sample.getBoth)
	}
}

// noteRatio keeps the ratio of two contestants, round by round. It keeps nothing if the second one was not measured.
func (b *bench) noteRatio(name string, of, to []sample, get func(sample) float64) {
	if len(to) > 0 {
		b.note(name, "", ratiosBy(of, to, get)...)
	}
}

// saturate keeps a number of flows in flight until all are done.
func (b *bench) saturate(ctx context.Context, c contestant, flows, inFlight int, prefix string) (sample, error) {
	ids := make([]string, flows)
	return b.rated(ctx, c.pid(), func() (int, error) {
		g, running := errgroup.WithContext(ctx)
		g.SetLimit(inFlight)
		for i := range ids {
			ids[i] = fmt.Sprint(prefix, "-", i)
			g.Go(func() error { return c.flow(running, ids[i]) })
		}
		if err := g.Wait(); err != nil {
			return 0, err
		}
		return flows, c.durable(ctx, ids)
	})
}

// measureLatency compares the duration of a flow at low load.
func measureLatency(ctx context.Context, b *bench) (err error) {
	const rate = 50
	all, err := b.enter(ctx, b.chosen(), 64)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(all)) }()
	samples, receipts := map[string][]sample{}, map[string][]sample{}
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
			if p, ok := e.contestant.(*binary); ok {
				receipts[e.name] = append(receipts[e.name], sample{latencies: p.posts()})
			}
		}
	}
	fmt.Fprintf(b.out, "latency of a flow at %d flows/s, median of %d rounds of %s\n", rate, b.rounds, b.span)
	b.table("\tp50 ms\tp99 ms\tp50 of naive\t", func(w *tabwriter.Writer) {
		for _, e := range all {
			got := samples[e.name]
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", e.as, medianOf(got, sample.p50), medianOf(got, sample.p99),
				ratioBy(got, samples["naive"], sample.p50))
			b.noteLatency(e.name, rate, samples, receipts[e.name])
		}
	})
	b.verdict("p50 at low load, of naive", ratiosBy(samples["procaas"], samples["naive"], sample.p50), 1.5, false)
	return nil
}

// noteLatency keeps the figures of a contestant.
func (b *bench) noteLatency(contestant string, rate int, samples map[string][]sample, receipts []sample) {
	name, isBefore := strings.CutSuffix(contestant, suffixBefore)
	if isBefore {
		b = b.before()
	}
	prefix := fmt.Sprintf("%s, %d a second: ", name, rate)
	b.note(prefix+"p50", "ms", collect(samples[contestant], sample.p50)...)
	b.note(prefix+"p99", "ms", collect(samples[contestant], sample.p99)...)
	b.noteRatio(prefix+"p50 of naive", samples[contestant], samples["naive"], sample.p50)
	if len(receipts) > 0 {
		b.note(prefix+"p50 until the receipt", "ms", collect(receipts, sample.p50)...)
	}
}

// pace starts calls at a fixed rate, even if earlier ones have not ended. It returns their durations from the
// scheduled start.
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
