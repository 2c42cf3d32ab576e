package flowtest

import (
	"maps"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// names finds handlers by paths that may omit their first parts.
type names struct {
	paths  []string            // of all handlers, in order
	byName map[string][]string // paths of handlers, by each of their names
	calls  map[string][]string // pipelines that a pipeline calls, directly or indirectly
}

func newNames(b *tree.Bundle) names {
	n := names{byName: map[string][]string{}}
	for _, p := range b.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				if p.Sends != nil {
					n.paths, n.byName[h.Path] = append(n.paths, h.Path), []string{h.Path}
					continue
				}
				n.add(h.Path)
				if undo := h.Compensation(); undo != nil {
					n.add(undo.Path)
				}
			}
		}
	}
	n.calls = map[string][]string{}
	for _, p := range b.Pipelines {
		n.calls[p.ID] = calledBy(b, p, nil)
	}
	return n
}

// add adds a path with all of its names.
func (n *names) add(path string) {
	n.paths = append(n.paths, path)
	parts := strings.Split(path, "/")
	for i := range parts {
		name := strings.Join(parts[i:], "/")
		n.byName[name] = append(n.byName[name], path)
	}
}

// calledBy lists a pipeline and those that it calls, directly or indirectly.
func calledBy(b *tree.Bundle, p *tree.Pipeline, seen []string) []string {
	if p == nil || slices.Contains(seen, p.ID) {
		return seen
	}
	seen = append(seen, p.ID)
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			if h.Call != nil {
				seen = calledBy(b, b.Pipeline(h.Call.Pipeline), seen)
			}
		}
	}
	return seen
}

// find lists the handlers with a name, of the given pipelines and those that they call, or of all
// if there are none.
func (n names) find(name string, pipelines ...string) []string {
	fits := n.byName[name]
	if len(pipelines) == 0 {
		return fits
	}
	return slices.DeleteFunc(slices.Clone(fits), func(path string) bool {
		pipeline, _, _ := strings.Cut(path, "/")
		return !slices.ContainsFunc(pipelines, func(p string) bool { return slices.Contains(n.calls[p], pipeline) })
	})
}

// near returns the name of the handler that was probably meant, or empty.
func (n names) near(name string, pipelines ...string) string {
	known := func(slashes int) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(n.byName)), func(k string) bool {
			return strings.Count(k, "/") != slashes || len(n.find(k, pipelines...)) == 0
		})
	}
	if near := diag.Suggest(name, known(strings.Count(name, "/"))); near != "" {
		return near
	}
	// The stage may be wrong, and the handler right or nearly right.
	last := name[strings.LastIndex(name, "/")+1:]
	if near := diag.Suggest(last, known(0)); near != "" {
		last = near
	}
	if fits := n.find(last, pipelines...); len(fits) > 0 && last != name {
		return n.short(fits[0])
	}
	return ""
}

// short returns the shortest unique name of a handler.
func (n names) short(path string) string {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i > 0; i-- {
		if name := strings.Join(parts[i:], "/"); len(n.byName[name]) == 1 {
			return name
		}
	}
	return path
}

// longest returns the longest name that matches a path, or empty.
func longest[T any](of map[string]T, path string) (name string) {
	for k := range of {
		if (k == path || strings.HasSuffix(path, "/"+k)) && len(k) > len(name) {
			name = k
		}
	}
	return name
}
