package cli

import (
	"fmt"
	"slices"
	"strings"

	"procaas/engine/model"
	"procaas/engine/stats"
)

// Paths lists all paths, including those of pipelines and stages.
func Paths(handlers []stats.HandlerInfo) []string {
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

// WholePath completes a path that was shortened from the left, such as stage/handler: people know what fails,
// but not always in which pipeline. It prints the completed path to standard error. It returns unknown paths unchanged.
func (q *Call) WholePath(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	handlers, err := q.Handlers(q.Ctx)
	if err != nil {
		return path, nil //nolint:nilerr // the caller may not be allowed to list handlers
	}
	known := Paths(handlers)
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
	if handler, undoes := strings.CutSuffix(path, model.UndoPath); undoes && len(ends) == 0 {
		handler, err := q.WholePath(handler) // the server knows whether it has a compensation
		return handler + model.UndoPath, err
	}
	switch len(ends) {
	case 0:
		return path, nil
	case 1:
		fmt.Fprintf(q.Err, "%s is %s\n", path, ends[0])
		return ends[0], nil
	}
	return "", Usagef("%s may be any of %s: say which", path, strings.Join(ends, ", "))
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
