package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/engine"
	"procaas/engine/api"
	"procaas/handlers"
)

func diffCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what a new set of pipelines changes, for new events and for runs in flight",
		Long: `diff compares two directories or files of pipelines: flows, stages, handlers with
their fields, which handlers wait for which others and why, and names of the
shared state that runs in flight may hold.

With --server it tells of each run in flight whether it could go on by the new
pipelines; if not, it is pinned to those that it began with. Both end.

Exit codes: 0 when nothing differs, 1 when something does.`,
		Example: "  procaas diff deployed/ flows/ --server http://127.0.0.1:8080",
		Args:    cobra.ExactArgs(2),
	}
	var f clientFlags
	c.Flags().StringVar(&f.server, "server", "", "address of a server whose runs in flight to look at")
	c.Flags().StringVar(&f.token, "admin-token", "", "bearer token for admin calls")
	format := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		out, err := format()
		if err != nil {
			return err
		}
		old, err := loadBundle(s, args[:1], dsl.Options{})
		if err != nil {
			return err
		}
		now, err := loadBundle(s, args[1:], dsl.Options{})
		if err != nil {
			return err
		}
		diff, err := engine.Compare(old, now, handlers.All())
		if err != nil {
			return err
		}
		report := diffReport{Diff: diff}
		if f.server != "" {
			if report.Runs, err = inFlight(c.Context(), f.client(), now); err != nil {
				return err
			}
		}
		return report.show(s, out)
	}
	return c
}

// A diffReport is what diff prints as JSON.
type diffReport struct {
	engine.Diff
	Runs []runFit `json:"runs,omitempty"`
}

// A runFit tells whether a run in flight could go on by the new pipelines.
type runFit struct {
	ID         string        `json:"id"`
	Pipeline   string        `json:"pipeline"`
	Status     engine.Status `json:"status"`
	Bundle     string        `json:"bundle"`
	Compatible bool          `json:"compatible"`
	Why        string        `json:"why,omitempty"` // it is pinned to its bundle
}

// inFlight looks at all runs in flight of a server.
func inFlight(ctx context.Context, client *api.Client, b *dsl.Bundle) ([]runFit, error) {
	plans, err := plansOf(b)
	if err != nil {
		return nil, err
	}
	byID := map[string]*engine.Plan{}
	for _, p := range plans {
		byID[p.Pipeline.ID] = p
	}
	fits := []runFit{}
	for filter := (engine.RunFilter{Live: true, Begun: true, Limit: 1000}); ; {
		page, err := client.Runs(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Items {
			fits = append(fits, fitOf(byID[v.Pipeline], v))
		}
		if page.Next == nil {
			return fits, nil
		}
		filter.Cursor = *page.Next
	}
}

func fitOf(p *engine.Plan, v engine.RunView) runFit {
	fit := runFit{ID: v.ID, Pipeline: v.Pipeline, Status: v.Status, Bundle: v.Bundle, Compatible: true}
	if p == nil {
		fit.Compatible, fit.Why = false, "the pipeline is gone"
	} else if err := engine.Fits(p, v); err != nil {
		fit.Compatible, fit.Why = false, err.Error()
	}
	return fit
}

// show prints the report and ends as diff does.
func (r diffReport) show(s streams, format string) error {
	if format == "json" {
		if err := printJSON(s.out, r); err != nil {
			return err
		}
	} else if err := r.text(s); err != nil {
		return err
	}
	if len(r.Changes) > 0 {
		return errFindings
	}
	return nil
}

func (r diffReport) text(s streams) error {
	if err := engine.WriteDiff(s.out, r.Diff); err != nil || r.Runs == nil {
		return err
	}
	const most = 20 // pinned runs that are named
	pinned := 0
	for _, fit := range r.Runs {
		if fit.Compatible {
			continue
		}
		if pinned++; pinned <= most {
			fmt.Fprintf(s.out, "! run %s of %s is pinned: %s\n", fit.ID, fit.Pipeline, fit.Why)
		}
	}
	if pinned > most {
		fmt.Fprintf(s.out, "! and %d more; see --format json\n", pinned-most)
	}
	fmt.Fprintf(s.out, "runs in flight: %d compatible, %d pinned\n", len(r.Runs)-pinned, pinned)
	return nil
}
