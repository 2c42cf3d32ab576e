package runs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/model"
	"procaas/engine/store"

	"github.com/spf13/cobra"
)

// choiceFlags are the flags that choose runs.
type choiceFlags struct {
	filter      store.RunFilter
	labels      []string
	when        cli.Span
	failedSince string
}

// add adds the flags. statuses are the allowed statuses.
func (f *choiceFlags) add(c *cobra.Command, statuses string) {
	flags := c.Flags()
	flags.StringVar(&f.filter.Pipeline, "pipeline", "", "only runs of this pipeline")
	flags.StringVar(&f.filter.Flow, "flow", "", "only runs of this flow")
	flags.StringVar(&f.filter.Key, "key", "", "only runs of this key")
	addVersion(c, &f.filter)
	f.addLabel(c)
	flags.StringVar((*string)(&f.filter.Status), "status", "", "only runs of this status: "+statuses)
	flags.StringVar(&f.filter.FailedPath, "handler", "",
		"only runs that failed in this handler, or below this pipeline or pipeline/stage; it may be "+
			"shortened from the left")
	flags.BoolVar(&f.filter.NotUndone, "not-undone", false, "only failed runs with a compensation that has failed for good")
	flags.StringVar(&f.filter.ErrorClass, "error-class", "",
		"only runs that failed with timeout, deadline, connection, credentials, certificate, schema, a status such as 503, 4xx, 5xx, status or other; quarantined: "+
			"runs that nodes died of; damaged: runs whose data in the store cannot be read")
	flags.StringVar(&f.filter.Error, "error", "", "only runs whose error contains this text")
	flags.StringVar(&f.failedSince, "failed-since", "",
		"only runs that are failed, and failed then or later: a time, or a duration before now such as 1h")
	f.addWhen(c)
}

func (f *choiceFlags) addLabel(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.labels, "label", nil, "only runs with this label: city=berlin, or city for any value; repeat it for several")
}

func addLeftBy(c *cobra.Command, f *store.RunFilter) {
	c.Flags().StringVar(&f.LeftBy, "left-by", "",
		"only runs that left the handler out for this reason: "+strings.Join(model.LeftReasons(), ", "))
}

func addVersion(c *cobra.Command, f *store.RunFilter) {
	c.Flags().StringVar(&f.Bundle, "version", "", "only runs on this version of the pipelines: at least its first 4 digits")
}

// read completes the filter: it parses times and completes paths of handlers.
func (f *choiceFlags) read(q *cli.Call) (err error) {
	f.filter.Labels = strings.Join(f.labels, ",")
	if err := model.CheckLabelFilter(f.filter.Labels); err != nil {
		return cli.Usagef("--label: %w", err)
	}
	if err := f.when.Read(&f.filter.Since, &f.filter.Until); err != nil {
		return err
	}
	if f.filter.FailedSince, err = cli.Instant("--failed-since", f.failedSince, time.Now()); err != nil {
		return err
	}
	if f.filter.FailedPath, err = q.WholePath(f.filter.FailedPath); err != nil {
		return err
	}
	f.filter.LeftOut, err = q.WholePath(f.filter.LeftOut)
	return err
}

func (f *choiceFlags) addWhen(c *cobra.Command) {
	f.when.Add(c, "only runs accepted at this time or later", "only runs accepted before")
}

// checkChoice refuses an unknown pipeline, flow or path in a filter that matched no run. One that is gone from
// the definition is valid as long as it has runs.
func checkChoice(q *cli.Call, f store.RunFilter) error {
	if err := checkFlow(q, f.Flow); err != nil {
		return err
	}
	for _, name := range []struct {
		what, value string
		all         store.RunFilter
	}{
		{"pipeline", f.Pipeline, store.RunFilter{Pipeline: f.Pipeline, Limit: 1}},
		{"path", f.FailedPath, store.RunFilter{FailedPath: f.FailedPath, Limit: 1}},
		{"path", f.LeftOut, store.RunFilter{LeftOut: f.LeftOut, Limit: 1}},
	} {
		if name.value == "" {
			continue
		}
		handlers, err := q.Handlers(q.Ctx)
		if err != nil || len(handlers) == 0 {
			return nil //nolint:nilerr // the caller may not be allowed to list handlers
		}
		known := cli.Paths(handlers)
		if slices.Contains(known, name.value) {
			continue
		}
		if page, err := q.Runs(q.Ctx, name.all); err != nil || len(page.Items) > 0 {
			return err
		}
		if name.what == "pipeline" {
			known = slices.DeleteFunc(known, func(path string) bool { return strings.Contains(path, "/") })
		}
		return cli.Usagef("there is no %s %q, and no run of one%s", name.what, name.value,
			cli.Meant(name.value, known, "; did you mean %q?", "; procaas top lists all handlers"))
	}
	return nil
}

// checkFlow refuses an unknown flow. The server's error has a suggestion.
func checkFlow(q *cli.Call, flow string) error {
	if flow == "" {
		return nil
	}
	_, err := q.Entity(q.Ctx, flow, "any")
	refused, ok := errors.AsType[*problem.Problem](err)
	if !ok || refused.Code != problem.FlowNotFound {
		return nil
	}
	if page, err := q.Runs(q.Ctx, store.RunFilter{Flow: flow, Limit: 1}); err != nil || len(page.Items) > 0 {
		return err
	}
	return cli.Usage(refused)
}

// tellWhyNone prints why no run matched: there is none, or those that match otherwise have another status.
func tellWhyNone(q *cli.Call, verb client.Verb, f store.RunFilter) error {
	takes := map[client.Verb]string{
		client.RetryRuns:  "retry takes runs that failed, and runs that wait for your decision",
		client.CancelRuns: "cancel takes runs that have not ended, and runs that failed",
		client.MakeUpRuns: "make-up takes succeeded runs that left the handler out",
	}[verb]
	wide := store.RunFilter{
		Pipeline: f.Pipeline, Flow: f.Flow, Key: f.Key, Bundle: f.Bundle, Labels: f.Labels, Since: f.Since, Until: f.Until, Limit: 1000, Brief: true,
	}
	page, err := q.Runs(q.Ctx, wide)
	if err != nil {
		return err
	}
	if len(page.Items) == 0 {
		return q.Printf("there is no run of this choice in any status; procaas runs list shows the newest runs\n")
	}
	counts := map[string]int{}
	for _, v := range page.Items {
		counts[statusOf(v)]++
	}
	var found []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		found = append(found, fmt.Sprintf("%d %s", counts[status], status))
	}
	newest := ""
	if page.Next != nil {
		newest = "the newest "
	}
	failure := ""
	if f.FailedPath != "" || f.ErrorClass != "" || f.Error != "" || f.NotUndone || !f.FailedSince.IsZero() {
		failure = " without the conditions on failures"
	}
	return q.Printf("the choice has %s%s%s: %s; %s\n", newest, diag.Plural(len(page.Items), "run"), failure, strings.Join(found, ", "), takes)
}
