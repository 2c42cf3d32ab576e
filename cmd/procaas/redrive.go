package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/store"
)

const redriveHelp = `

With conditions in place of ids, all runs are taken that fulfil them, the first
accepted first. --dry-run shows which; --rate paces the rest. Each run is met
once, even if it fails again meanwhile. When broken off, say the same again: a
run that goes on already is left alone.`

// redriveFlags choose many runs and say how fast to go on with them.
type redriveFlags struct {
	filter       store.RunFilter
	since, until string
	dryRun       bool
	rate         string
	limit        int
	abandon      bool // cancelled runs undo nothing
}

func (f *redriveFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.filter.Pipeline, "pipeline", "", "runs of this pipeline")
	flags.StringVar(&f.filter.Flow, "flow", "", "runs of this flow")
	flags.StringVar(&f.filter.Key, "key", "", "runs of this key")
	flags.StringVar((*string)(&f.filter.Status), "status", "", "runs of this status")
	flags.StringVar(&f.filter.FailedPath, "handler", "", "runs that failed in this handler, or below this pipeline or pipeline/stage")
	flags.StringVar(&f.filter.ErrorClass, "error-class", "", "runs that failed by timeout, connection, schema, a status such as 503, 4xx, "+
		"5xx, status or other; quarantined: nodes have died of them")
	flags.StringVar(&f.filter.Error, "error", "", "runs whose error contains this text")
	f.addPace(c)
}

// addPace adds the flags that all have who do something to many runs.
func (f *redriveFlags) addPace(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.since, "since", "", "runs accepted then or later: a time, or a duration before now such as 1h")
	flags.StringVar(&f.until, "until", "", "runs accepted before: a time, or a duration before now")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show which runs are chosen, and do nothing")
	flags.StringVar(&f.rate, "rate", "50/s", "how many runs in what time")
	flags.IntVar(&f.limit, "limit", 0, "stop after so many runs; 0 for all")
}

// choose completes the filter.
func (f *redriveFlags) choose(now time.Time) (filter store.RunFilter, err error) {
	filter = f.filter
	if f.limit < 0 {
		return filter, usagef("--limit %d: want a number of runs, or 0 for all", f.limit)
	}
	if filter.Since, err = instant("--since", f.since, now); err != nil {
		return filter, err
	}
	filter.Until, err = instant("--until", f.until, now)
	return filter, err
}

// instant reads a time, or a duration before now.
func instant(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := datum.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usagef("%s %q: want a time such as 2006-01-02T15:04:05Z, or a duration such as 1h", flag, text)
	}
	return t, nil
}

// redrive does something to all runs that the flags choose.
func (f *redriveFlags) redrive(ctx context.Context, s streams, client *client.Client, verb client.Verb, reason string) error {
	filter, err := f.choose(time.Now())
	if err != nil {
		return err
	}
	if filter == (store.RunFilter{}) {
		return usagef("%s needs ids of runs, or a condition such as --pipeline", verb)
	}
	pace, err := datum.ParseRate(f.rate)
	if err != nil {
		return usagef("--rate %q: %w", f.rate, err)
	}
	body := wire.NewRedrive(filter)
	preview, err := client.Preview(ctx, verb, body)
	if err != nil {
		return err
	}
	if f.dryRun {
		return showPreview(s, preview)
	}
	body.Reason = reason
	if f.abandon {
		body.Compensate = new(bool)
	}
	w := &redriveWalk{streams: s, client: client, verb: verb, body: body, total: preview.Total, left: f.limit}
	if w.left <= 0 {
		w.left = math.MaxInt
	}
	w.total = min(w.total, w.left)
	return w.walk(ctx, pace.PerSecond())
}

// A redriveWalk goes through the chosen runs, page by page.
type redriveWalk struct {
	streams
	client *client.Client
	verb   client.Verb
	body   wire.Redrive

	total, left   int
	done, movedOn int
}

func (w *redriveWalk) walk(ctx context.Context, perSecond float64) error {
	page, limiter := pages(perSecond)
	for w.left > 0 {
		w.body.Limit = min(page, w.left)
		if err := limiter.WaitN(ctx, w.body.Limit); err != nil {
			return w.brokenOff(err)
		}
		d, err := w.client.Redrive(ctx, w.verb, w.body)
		if err != nil {
			return w.brokenOff(err)
		}
		w.done, w.movedOn, w.left = w.done+d.Done, w.movedOn+d.MovedOn, w.left-d.Done-d.MovedOn
		if terminal(w.err) {
			fmt.Fprintf(w.err, "\r%s of %d", w.told(), w.total)
		}
		if d.Next == nil {
			break
		}
		w.body.Cursor = *d.Next
	}
	if terminal(w.err) {
		fmt.Fprint(w.err, "\r\x1b[K")
	}
	fmt.Fprintln(w.out, w.told())
	return nil
}

// pages gives the size of a page, and what paces the runs: a few pages each
// second, so that the pace is even.
func pages(perSecond float64) (size int, limiter *rate.Limiter) {
	const most = 100
	size = int(min(max(perSecond/5, 1), most))
	return size, rate.NewLimiter(rate.Limit(perSecond), size)
}

func (w *redriveWalk) told() string {
	what := map[client.Verb]string{client.RetryRuns: "retried", client.CancelRuns: "cancelled", client.MakeUpRuns: "made up"}[w.verb]
	text := fmt.Sprintf("%s %d runs", what, w.done)
	if w.movedOn > 0 {
		text += fmt.Sprintf(", %d had moved on", w.movedOn)
	}
	return text
}

func (w *redriveWalk) brokenOff(err error) error {
	return fmt.Errorf("%s, then: %w; say the same again to go on", w.told(), err)
}

// showPreview tells which runs are chosen.
func showPreview(s streams, p engine.RunsPreview) error {
	w := newTable(s.out, "RUNS\tPIPELINE\tHANDLER\tCLASS")
	for _, g := range p.Groups {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", g.Runs, g.Pipeline, dash(g.FailedPath), dash(g.ErrorClass))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d runs in all\n", p.Total)
	for _, v := range p.Runs {
		fmt.Fprintf(s.out, "  %s %s %s\n", v.ID, v.Status, strings.TrimSpace(v.Key+" "+v.Error))
	}
	if more := p.Total - len(p.Runs); more > 0 {
		fmt.Fprintf(s.out, "  and %d more\n", more)
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
