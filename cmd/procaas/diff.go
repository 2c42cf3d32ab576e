package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"procaas/dsl"
	"procaas/engine"
	"procaas/engine/api/client"
	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/planner"
	"procaas/engine/store"
	"procaas/handlers"
)

func diffCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Show what a new set of pipelines changes, for new events and for runs in flight",
		Long: `diff compares two directories or files of pipelines: flows, stages, handlers with
their fields, which handlers wait for which others and why, and names of the
shared state that runs in flight may hold. Of shard maps and clusters it tells
what a change means for keys that are placed.

With --server it tells of each run in flight whether it could go on by the new
pipelines; if not, it is pinned to those that it began with. Both end.

Exit codes: 0 when nothing differs, 1 when something does.`,
		Example: "  procaas diff deployed/ flows/ --server http://127.0.0.1:8080",
		Args:    cobra.ExactArgs(2),
	}
	var f clientFlags
	c.Flags().StringVar(&f.server, "server", "", "address of a server whose runs in flight to look at")
	c.Flags().StringVar(&f.token, "token", "", "bearer token to call it with; see procaas token")
	c.Flags().StringVar(&f.adminToken, "admin-token", "", "the same")
	_ = c.Flags().MarkHidden("admin-token") // as in clientFlags.add, whose --server has a default
	c.RunE = formatted(c, []string{"text", "json"}, func(c *cobra.Command, args []string, out string) error {
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
			if report.Runs, err = inFlight(c.Context(), f.client(), old, now); err != nil {
				return err
			}
		}
		return report.show(s, out)
	})
	return c
}

// A diffReport is what diff prints as JSON.
type diffReport struct {
	engine.Diff
	Runs []engine.RunFit `json:"runs,omitempty"`
}

// inFlight looks at all runs in flight of a server.
func inFlight(ctx context.Context, client *client.Client, old, now *dsl.Bundle) ([]engine.RunFit, error) {
	before, err := plansByID(old)
	if err != nil {
		return nil, err
	}
	after, err := plansByID(now)
	if err != nil {
		return nil, err
	}
	fits := []engine.RunFit{}
	for filter := (store.RunFilter{Live: true, Begun: true, Limit: 1000}); ; {
		page, err := client.Runs(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Items {
			var was *planner.Plan // not known when the run has begun by yet another definition
			if v.Bundle == old.Hash {
				was = before[v.Pipeline]
			}
			why, err := pinned(ctx, client, was, after[v.Pipeline], v)
			if err != nil {
				return nil, err
			}
			fits = append(fits, engine.NewRunFit(v, why))
		}
		if page.Next == nil {
			return fits, nil
		}
		filter.Cursor = *page.Next
	}
}

func plansByID(b *dsl.Bundle) (map[string]*planner.Plan, error) {
	plans, err := plansOf(b)
	byID := map[string]*planner.Plan{}
	for _, p := range plans {
		byID[p.Pipeline.ID] = p
	}
	return byID, err
}

// pinned tells why a run cannot go on by another plan; nil when it can.
func pinned(ctx context.Context, client *client.Client, before, after *planner.Plan, v checkpoint.RunView) (why, err error) {
	if after == nil {
		return engine.ErrPipelineGone, nil
	}
	if why := core.Fits(before, after, v); why != nil {
		return why, nil
	}
	if after.Flow == nil || after.Flow.States == nil || v.Key == "" {
		return nil, nil
	}
	entity, err := client.Entity(ctx, v.Flow, v.Key)
	if err != nil {
		return nil, err
	}
	return engine.FitsState(after, entity.State, v.Event.Type), nil
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
	report := fitReport{streams: s}
	for _, fit := range r.Runs {
		if fit.Compatible {
			report.fits++
		} else {
			report.tell(fit)
		}
	}
	fmt.Fprintln(s.out, "runs in flight: "+report.sum())
	return nil
}
