package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/checkpoint"
	"procaas/engine/store"
)

func runsMigrate(s streams, f *clientFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate [RUN…]",
		Short: "Let runs in flight go on by the present pipelines",
		Long: `migrate lets runs that have begun by older pipelines, failed ones too, go on by
those that the server has now. A run that does not fit stays as it is, and the
reason is told; procaas diff --server tells it before the pipelines are there.
A run that a node works on is moved when its calls under way have ended.

With conditions in place of ids, all runs are taken that fulfil them, the first
accepted first. --dry-run tells which fit; --rate paces the rest.

Exit codes: 0 when all fit, 1 when some do not.`,
		Example: "  procaas runs migrate --pipeline new-order-created --dry-run",
		Args:    cobra.ArbitraryArgs,
	}
	var many redriveFlags
	many.add(c)
	reason := c.Flags().String("reason", "", "why, for the audit")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return many.migrate(c.Context(), s, f.client(), *reason)
		}
		if many.dryRun {
			return fitRuns(c.Context(), s, f.client(), args)
		}
		return forEachRun(s, args, func(id string) (checkpoint.RunView, error) { return f.client().Migrate(c.Context(), id, *reason) })
	}
	return c
}

// fitRuns tells whether runs fit the present pipelines.
func fitRuns(ctx context.Context, s streams, client *client.Client, ids []string) error {
	report := fitReport{streams: s}
	var worst error
	for _, id := range ids {
		fit, err := client.Fit(ctx, id)
		switch {
		case err != nil:
			worst = graver(worst, err)
			fmt.Fprintf(s.err, "procaas: run %s: %v\n", id, err)
		case fit.Compatible:
			report.fits++
		default:
			report.tell(fit)
		}
	}
	fmt.Fprintln(s.out, report.sum())
	if worst == nil && report.pinned > 0 {
		return errFindings
	}
	return told(s, worst)
}

// migrate moves all runs that the flags choose, page by page.
func (f *redriveFlags) migrate(ctx context.Context, s streams, client *client.Client, reason string) error {
	filter, err := f.choose(time.Now())
	if err != nil {
		return err
	}
	if filter == (store.RunFilter{}) {
		return usagef("migrate needs ids of runs, or a condition such as --pipeline")
	}
	pace, err := datum.ParseRate(f.rate)
	if err != nil {
		return usagef("--rate %q: %w", f.rate, err)
	}
	page, limiter := pages(pace.PerSecond())
	if f.dryRun {
		page, limiter = 1000, rate.NewLimiter(rate.Inf, 1000)
	}
	body := wire.NewRedrive(filter)
	body.Reason, body.Preview = reason, f.dryRun
	report := fitReport{streams: s, done: !f.dryRun}
	left := f.limit
	if left <= 0 {
		left = math.MaxInt
	}
	for left > 0 {
		body.Limit = min(page, left)
		if err := limiter.WaitN(ctx, body.Limit); err != nil {
			return report.brokenOff(err)
		}
		m, err := client.MigrateRuns(ctx, body)
		if err != nil {
			return report.brokenOff(err)
		}
		report.fits += m.Done
		for _, fit := range m.Pinned {
			report.tell(fit)
		}
		if m.Next == nil {
			break
		}
		left -= body.Limit
		body.Cursor = *m.Next
	}
	fmt.Fprintln(s.out, report.sum())
	if report.pinned > 0 {
		return errFindings
	}
	return nil
}

// A fitReport tells which runs fit other pipelines, as diff and migrate do.
type fitReport struct {
	streams
	done         bool // those that fit have been moved
	fits, pinned int
}

// mostPinned is how many pinned runs are named.
const mostPinned = 20

// tell tells of a run that does not fit.
func (r *fitReport) tell(fit engine.RunFit) {
	if r.pinned++; r.pinned <= mostPinned {
		fmt.Fprintf(r.out, "! run %s of %s is pinned: %s\n", fit.ID, fit.Pipeline, fit.Why)
	}
}

func (r *fitReport) sum() string {
	text := fmt.Sprintf("%d compatible, %d pinned", r.fits, r.pinned)
	if r.done {
		text = fmt.Sprintf("migrated %d runs, %d are pinned", r.fits, r.pinned)
	}
	if more := r.pinned - mostPinned; more > 0 {
		text = fmt.Sprintf("! and %d more\n", more) + text
	}
	return text
}

func (r *fitReport) brokenOff(err error) error {
	return fmt.Errorf("%s, then: %w; say the same again to go on", r.sum(), err)
}
