package operate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/api/problem"
	"procaas/engine/stats"
	"procaas/engine/store"
)

// prefixes lists all paths, including those of pipelines and stages.
func prefixes(handlers []stats.HandlerInfo) []string {
	var out []string
	for _, h := range handlers {
		for i, c := range h.Path {
			if c == '/' {
				out = append(out, h.Path[:i])
			}
		}
		out = append(out, h.Path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wholePath completes a path that was shortened from the left, such as stage/handler: people know what fails,
// but not always in which pipeline. It returns unknown paths unchanged.
func wholePath(q *cli.Call, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	handlers, err := q.Handlers(q.Ctx)
	if err != nil {
		return path, nil //nolint:nilerr // the caller may not be allowed to list handlers
	}
	return pathAmong(q, path, prefixes(handlers))
}

// pathAmong is [wholePath] for known paths. It prints the completed path to standard error.
func pathAmong(q *cli.Call, path string, known []string) (string, error) {
	path = strings.Trim(path, "/")
	if slices.Contains(known, path) {
		return path, nil
	}
	var ends []string
	for _, k := range known {
		if strings.HasSuffix(k, "/"+path) {
			ends = append(ends, k)
		}
	}
	if len(ends) == 2 && isOnlyHandler(ends[1], ends[0], known) {
		ends = ends[1:] // a stage and its only handler have the same name and meaning
	}
	switch len(ends) {
	case 0:
		return path, nil
	case 1:
		fmt.Fprintf(q.Err, "%s is %s\n", path, ends[0])
		return ends[0], nil
	}
	return "", cli.Usagef("%s may be any of %s: say which", path, strings.Join(ends, ", "))
}

// isOnlyHandler reports whether a path is that of the only handler of a stage.
func isOnlyHandler(handler, stage string, known []string) bool {
	below := 0
	for _, k := range known {
		if strings.HasPrefix(k, stage+"/") {
			below++
		}
	}
	return below == 1 && strings.HasPrefix(handler, stage+"/")
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
		known := prefixes(handlers)
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
