package authoring

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"procaas/cmd/procaas/addons"
	"procaas/cmd/procaas/internal/runview"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/problem"
	"procaas/engine/checkpoint"
	"procaas/engine/core"
	"procaas/engine/definitions"
	"procaas/engine/diff"
	"procaas/engine/planner"
	"procaas/engine/records"
	"procaas/engine/store"
)

func diffCommand() *cobra.Command {
	var openapi string
	c := &cobra.Command{
		Use:   "diff {OLD NEW | NEW --server URL | --openapi OLD [PATH…]}",
		Short: "Show what new pipelines change, for new events and for runs in flight",
		Long: `diff compares two directories or files of pipelines. It compares flows, stages, the
fields of handlers, and which handlers wait for which others and why. It also names
the shared state that runs in flight may hold. For shard maps and clusters it shows
what a change means for keys that have a place.

With --server it shows for each run in flight whether the run fits the new pipelines.
A run that does not fit is pinned to the pipelines that it began with. Both kinds
of run finish. Without OLD, it compares NEW with what is current on the server. It
also names each file with other contents, even if these only differ in a comment.

With --openapi it compares the old OpenAPI document of a service with the one that the
pipelines name. It shows what of the new document breaks which handler: the errors and
warnings of validate that the old document does not cause.

Exit codes: 0 when nothing differs, 1 when something does.`,
		Example: `  procaas diff flows/ --server http://127.0.0.1:8080
  procaas diff deployed/ flows/ --server http://127.0.0.1:8080
  procaas diff --openapi old.yaml flows/
  procaas diff --openapi orders=old.yaml flows/`,
		Args: func(c *cobra.Command, args []string) error {
			if openapi != "" {
				return nil
			}
			if server, _ := c.Flags().GetString("server"); server != "" && len(args) == 1 {
				return nil
			}
			return cobra.ExactArgs(2)(c, args)
		},
	}
	c.Flags().StringVar(&openapi, "openapi", "", "an old OpenAPI document; SERVICE=FILE if several services have one")
	cli.OptionalServer(c, "address of a server whose runs in flight to look at")
	return cli.Formatted(c, func(q *cli.Call) error {
		if openapi != "" {
			if q.Server != "" {
				return cli.Usagef("--server looks at runs in flight, and --openapi at no runs: give one of them")
			}
			paths := q.Args
			if len(paths) == 0 {
				paths = []string{"."}
			}
			found, err := compareAPI(q.Streams, openapi, paths)
			if err != nil {
				return err
			}
			return cmp.Or(q.Show(found, func() error { return breakText(q.Streams, found) }), cli.FindingsIf(len(found) > 0))
		}
		last := len(q.Args) - 1
		now, err := source.Bundle(q.Streams, q.Args[last:], dsl.Options{})
		if err != nil {
			return err
		}
		old, err := before(q, q.Args[:last])
		if err != nil {
			return err
		}
		diff, err := diff.Compare(old, now, addons.Types(), addons.Compare()...)
		if err != nil {
			return err
		}
		report := diffReport{Diff: diff}
		if last == 0 {
			report.Files = changedFiles(old, now)
		}
		if q.Server != "" {
			report.Runs, err = inFlight(q.Ctx, q.Client, old, now)
			if refused, ok := errors.AsType[*problem.Problem](err); ok && refused.Code == problem.Forbidden && last == 0 {
				fmt.Fprintln(q.Err, "procaas: the runs in flight are not compared, since this token may not read them")
			} else if err != nil {
				return err
			}
		}
		return cmp.Or(q.Show(report, func() error { return report.text(q.Streams) }), cli.FindingsIf(len(report.Changes)+len(report.Files) > 0))
	})
}

// A diffReport is what diff prints as JSON.
type diffReport struct {
	diff.Diff
	Files []changedFile    `json:"files,omitempty"` // compared with a server only
	Runs  []records.RunFit `json:"runs,omitempty"`
}

// A changedFile is a file of only one side, or one with other contents.
type changedFile struct {
	Path   string `json:"path"` // below the directory of the set
	Change string `json:"change"`
}

// before reads the old pipelines from a path, or else those that are current on the server.
func before(q *cli.Call, path []string) (*tree.Bundle, error) {
	if len(path) > 0 {
		return source.Bundle(q.Streams, path, dsl.Options{})
	}
	v, err := q.Version(q.Ctx, definitions.StateCurrent)
	if err != nil {
		return nil, err
	}
	var files []diag.File
	for _, f := range v.Files {
		files = append(files, diag.File{Name: f.Path, ID: f.Path, Data: []byte(f.Text)})
	}
	b, err := source.Check(cli.Streams{Out: io.Discard, Err: io.Discard}, files, dsl.Options{Stored: true})
	if err != nil {
		return nil, fmt.Errorf("this procaas cannot read the version %s of the server: %w", cli.Short(v.Version.Version), err)
	}
	return b, nil
}

// Drift names the files below paths that differ from those that are current on the server.
func Drift(q *cli.Call, paths []string) ([]string, error) {
	now, err := source.Bundle(cli.Streams{Out: io.Discard, Err: q.Err}, paths, dsl.Options{})
	if err != nil {
		return nil, err
	}
	old, err := before(q, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range changedFiles(old, now) {
		names = append(names, f.Path+" is "+f.Change)
	}
	return names, nil
}

// changedFiles lists the files that differ, by path.
func changedFiles(old, now *tree.Bundle) []changedFile {
	path := func(f diag.File) string { return cmp.Or(f.ID, f.Name) }
	had := map[string][]byte{}
	for _, f := range old.Files {
		had[path(f)] = f.Data
	}
	var out []changedFile
	for _, f := range now.Files {
		data, known := had[path(f)]
		delete(had, path(f))
		switch {
		case !known:
			out = append(out, changedFile{path(f), diff.Added})
		case !bytes.Equal(data, f.Data):
			out = append(out, changedFile{path(f), diff.Changed})
		}
	}
	for name := range had {
		out = append(out, changedFile{name, diff.Removed})
	}
	slices.SortFunc(out, func(a, b changedFile) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// inFlight checks whether the runs in flight of a server fit.
func inFlight(ctx context.Context, client *client.Client, old, now *tree.Bundle) ([]records.RunFit, error) {
	before, err := plansByID(old)
	if err != nil {
		return nil, err
	}
	after, err := plansByID(now)
	if err != nil {
		return nil, err
	}
	fits := []records.RunFit{}
	for filter := (store.RunFilter{Live: true, Begun: true, Limit: 1000}); ; {
		page, err := client.Runs(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Items {
			var was *planner.Plan // unknown for runs that began with another definition
			if v.Bundle == old.Hash {
				was = before[v.Pipeline]
			}
			why, err := pinned(ctx, client, was, after[v.Pipeline], v)
			if err != nil {
				return nil, err
			}
			fits = append(fits, records.NewRunFit(v, why))
		}
		if page.Next == nil {
			return fits, nil
		}
		filter.Cursor = *page.Next
	}
}

func plansByID(b *tree.Bundle) (map[string]*planner.Plan, error) {
	plans, err := source.Plans(b)
	byID := map[string]*planner.Plan{}
	for _, p := range plans {
		byID[p.Pipeline.ID] = p
	}
	return byID, err
}

// pinned returns why a run cannot continue with another plan, or nil.
func pinned(ctx context.Context, client *client.Client, before, after *planner.Plan, v checkpoint.RunView) (why, err error) {
	if after == nil {
		return records.ErrPipelineGone, nil
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
	return records.FitsState(after, entity.State, v.Event.Type), nil
}

func (r diffReport) text(s cli.Streams) error {
	for _, f := range r.Files {
		fmt.Fprintf(s.Out, "file %s is %s\n", f.Path, f.Change)
	}
	if err := diff.Write(s.Out, r.Diff); err != nil || r.Runs == nil {
		return err
	}
	report := runview.Fits{Streams: s}
	for _, fit := range r.Runs {
		report.Add(fit)
	}
	sum := report.Sum()
	if report.Fit > 0 {
		sum += "\nEach continues with the version that it began with. After you deploy, procaas runs migrate moves the compatible ones"
	}
	return s.Printf("runs in flight: %s\n", sum)
}
