package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A bench is the common state of all measurements.
type bench struct {
	options
	out      io.Writer
	service  *service // it does nothing
	server   *server
	found    *findings
	isBefore bool // binary is that of -beside
}

// options are the flags. parse describes them.
type options struct {
	only      []string
	match     []string
	binary    string
	beside    string
	procs     int
	groups    []chosenGroup // of figures; nil without -figures
	dsn       string
	flows     int
	rounds    int
	backlog   int
	tasks     int
	cancelled int
	crowd     int
	pass      int
	span      time.Duration
	profile   string
	allocs    string
}

// A sample is the result of one contestant in one round.
type sample struct {
	rate      float64       // flows, events or tasks per second
	client    time.Duration // processor time per flow of this process, if the contestant is another one
	own       time.Duration // processor time per flow of the contestant
	server    time.Duration // processor time per flow of PostgreSQL
	log       float64       // bytes of PostgreSQL's write-ahead log per flow
	latencies []time.Duration
}

// rated measures do, which returns how many flows, events or tasks it has done. pid is the contestant's
// process, or 0 for this one.
func (b *bench) rated(ctx context.Context, pid int, do func() (int, error)) (s sample, err error) {
	log, err := b.server.logged(ctx)
	if err != nil {
		return s, err
	}
	began, server := time.Now(), b.server.cpu()
	client, own := ownCPU(), cpuOf(pid)
	n, err := do()
	if err != nil {
		return s, err
	}
	took, each := time.Since(began), time.Duration(n)
	s = sample{rate: float64(n) / took.Seconds(), server: (b.server.cpu() - server) / each, client: (ownCPU() - client) / each}
	if pid == 0 {
		s.client, s.own = 0, s.client
	} else {
		s.own = (cpuOf(pid) - own) / each
	}
	logged, err := b.server.logged(ctx)
	s.log = (logged - log) / float64(n)
	return s, err
}

// best returns the option with the highest rate in a short try.
func best[T any](options []T, try func(T) (sample, error)) (found T, err error) {
	var rate float64
	for _, o := range options {
		s, err := try(o)
		if err != nil {
			return found, err
		}
		if s.rate > rate {
			found, rate = o, s.rate
		}
	}
	return found, nil
}

// A line is the row of a contestant in a table, over all rounds.
type line struct {
	name string
	of   []sample
	more []string // further columns
}

// compare prints a table of rates and costs.
func (b *bench) compare(unit string, lines []line, more ...string) {
	head := append([]string{"", unit + "/s", "", "client µs", "program µs", "PostgreSQL µs", "log bytes"}, more...)
	b.table(strings.Join(head, "\t")+"\t", func(w *tabwriter.Writer) {
		for _, l := range lines {
			rates := collect(l.of, sample.getRate)
			cells := append([]string{
				l.name, short(median(rates)), fmt.Sprintf("(%s to %s)", short(slices.Min(rates)), short(slices.Max(rates))),
				short(medianOf(l.of, sample.getClient)), short(medianOf(l.of, sample.getOwn)), short(medianOf(l.of, sample.getServer)),
				short(medianOf(l.of, sample.getLog)),
			}, l.more...)
			fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
		}
	})
}

func (b *bench) table(head string, fill func(*tabwriter.Writer)) {
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	fill(w)
	w.Flush()
}

// short formats small numbers with decimals.
func short(v float64) string {
	decimals := 0
	switch size := math.Abs(v); {
	case size != 0 && size < 10:
		decimals = 2
	case size != 0 && size < 100:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

func (s sample) getRate() float64   { return s.rate }
func (s sample) getClient() float64 { return micros(s.client) }
func (s sample) getOwn() float64    { return micros(s.own) }
func (s sample) getServer() float64 { return micros(s.server) }
func (s sample) getBoth() float64   { return micros(s.own + s.server) } // program and PostgreSQL
func (s sample) getLog() float64    { return s.log }
func (s sample) p50() float64       { return quantile(s.latencies, 0.5) }
func (s sample) p99() float64       { return quantile(s.latencies, 0.99) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

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

func collect[T any](samples []T, get func(T) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = get(s)
	}
	return values
}

func medianOf[T any](samples []T, get func(T) float64) float64 { return median(collect(samples, get)) }

// ratiosBy compares round by round, since a disturbance affects both contestants of a round.
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

// verdict prints whether a target is met.
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
