package dsl

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// A Loader loads a set of files again and again while people edit it. When only files of pipelines have changed, it loads these, what
// they are connected with, and what all pipelines share. Everything else stays as it was, so a new bundle shares it with the bundle
// before. The result is always that of [Load]: where that is not certain, it loads all files. The zero value has loaded nothing.
//
// All loads must have the same types. A Loader is safe for concurrent use.
type Loader struct {
	mu    sync.Mutex // guards what follows
	last  *loaded    // the last set without errors; nil at the start
	parts int        // how many times only a part was loaded since all files were
}

// mostParts is how many times in a row a part may be loaded. What the pipelines of each part share, such as compiled schemas, stays in
// memory with them.
const mostParts = 32

// A loaded is a set of files without errors. It never changes, apart from what edits find out about it.
type loaded struct {
	files   []diag.File // as given, sorted by name
	options Options
	bundle  *tree.Bundle
	found   []diag.Diagnostic
	plain   map[string]bool // files that have nothing but pipelines, and name no other file

	// What the next edit can use.
	connections *connections      // nil until an edit needs them
	part        map[string]bool   // the part that was loaded last; nil if all files were
	partFound   []diag.Diagnostic // the findings of that part alone
}

// Load is the function [Load]. A nil loader keeps nothing.
func (l *Loader) Load(files []diag.File, o Options) (*tree.Bundle, []diag.Diagnostic) {
	if l == nil {
		return Load(files, o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b diag.File) int { return cmp.Compare(a.Name, b.Name) })
	if l.parts < mostParts {
		if next := l.last.edited(files, o); next != nil {
			l.last = next
			l.parts++
			return next.bundle, slices.Clone(next.found)
		}
	}
	next := loadAll(files, o)
	if next.bundle != nil {
		l.last, l.parts = next, 0
	}
	return next.bundle, next.found
}

// loadAll loads files.
func loadAll(files []diag.File, o Options) *loaded {
	set := decode.Read(files, o.Language, o.Types, o.Read)
	plain := make(map[string]bool, len(set.Given))
	for _, f := range set.Given {
		plain[f.Name] = f.HasOnlyPipelines()
	}
	bundle, found := load(set, o)
	return &loaded{files: files, options: o, bundle: bundle, found: found, plain: plain}
}

// edited returns the set after an edit of some files of pipelines. It is nil if all files must be loaded.
func (l *loaded) edited(files []diag.File, o Options) *loaded {
	if l == nil || o.Language != l.options.Language || o.Stored != l.options.Stored || !maps.Equal(o.ServiceURLs, l.options.ServiceURLs) ||
		!l.sameBeside(files, o) {
		return nil
	}
	part := map[string]bool{} // the names of the files to load, beside what all pipelines share
	for i, f := range files {
		if bytes.Equal(f.Data, l.files[i].Data) {
			files[i] = l.files[i] // so that both sets share the text
			continue
		}
		if !l.plain[f.Name] {
			return nil
		}
		part[f.Name] = true
	}
	if len(part) == 0 {
		return l
	}
	if l.connections == nil {
		l.connections = connectionsOf(l)
	}
	c := l.connections
	if c == nil {
		return nil
	}
	for {
		now := loadAll(l.withShared(files, part), o)
		if now.bundle == nil {
			return nil // only the whole set knows all names that an error may suggest
		}
		for name := range part {
			if !now.plain[name] {
				return nil
			}
		}
		size := len(part)
		if !c.extend(part, now.bundle, files) {
			return nil
		}
		if len(part) == size {
			next := l.replace(files, part, now)
			if next != nil {
				next.connections = c.after(next, part)
			}
			return next
		}
	}
}

// sameBeside reports whether files have the names of this set, and whether the files that they name have not changed.
func (l *loaded) sameBeside(files []diag.File, o Options) bool {
	given := make(map[string]bool, len(files))
	if !slices.EqualFunc(files, l.files, func(a, b diag.File) bool {
		given[a.Name] = true
		return a.Name == b.Name && a.ID == b.ID
	}) || len(given) < len(files) {
		return false
	}
	for _, f := range l.bundle.Files {
		if given[f.Name] {
			continue
		}
		if o.Read == nil {
			return false
		}
		if data, err := o.Read(f.Name); err != nil || !bytes.Equal(data, f.Data) {
			return false
		}
	}
	return true
}

// withShared returns the files of a part, and those that all pipelines share.
func (l *loaded) withShared(files []diag.File, part map[string]bool) []diag.File {
	return slices.DeleteFunc(slices.Clone(files), func(f diag.File) bool { return l.plain[f.Name] && !part[f.Name] })
}

// replace returns the set with the pipelines and findings of a part that was loaded again. It is nil if the part does not mean the
// same alone as in the set.
func (l *loaded) replace(files []diag.File, part map[string]bool, now *loaded) *loaded {
	inPart := func(d diag.Diagnostic) bool { return part[d.File] }
	before, ok := l.foundIn(part)
	if !ok || !sameFindings(only(before, inPart), only(l.found, inPart)) || !sameFindings(except(before, inPart), except(now.found, inPart)) {
		return nil
	}
	found := diag.Reporter{Found: append(except(l.found, inPart), only(now.found, inPart)...)}
	next := &loaded{files: files, options: l.options, found: found.Diagnostics(), plain: l.plain, part: part, partFound: now.found}
	next.bundle = graft(l.bundle, now.bundle, part)
	next.bundle.Files = slices.Clone(l.bundle.Files)
	for i, f := range next.bundle.Files {
		if at := slices.IndexFunc(files, func(g diag.File) bool { return g.Name == f.Name }); part[f.Name] && at >= 0 {
			next.bundle.Files[i] = files[at]
		}
	}
	next.bundle.Hash = Hash(next.bundle.Files)
	return next
}

// foundIn returns the findings of a part of this set alone. ok is false if it has errors. People edit one file again and again, so its
// findings are mostly known from the edit before.
func (l *loaded) foundIn(part map[string]bool) (found []diag.Diagnostic, ok bool) {
	if l.part != nil && maps.Equal(l.part, part) {
		return l.partFound, true
	}
	alone := loadAll(l.withShared(l.files, part), l.options)
	return alone.found, alone.bundle != nil
}

func only(found []diag.Diagnostic, want func(diag.Diagnostic) bool) []diag.Diagnostic {
	return except(found, func(d diag.Diagnostic) bool { return !want(d) })
}

func except(found []diag.Diagnostic, not func(diag.Diagnostic) bool) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(found), not)
}

// sameFindings reports whether two lists say the same at the same places.
func sameFindings(a, b []diag.Diagnostic) bool {
	return slices.EqualFunc(a, b, func(a, b diag.Diagnostic) bool {
		return a.Span == b.Span && a.Code == b.Code && a.Severity == b.Severity && a.Message == b.Message && a.Hint == b.Hint &&
			slices.Equal(a.Related, b.Related)
	})
}

// graft returns a bundle with the pipelines of some files from another one, which has these files, too.
func graft(b, from *tree.Bundle, part map[string]bool) *tree.Bundle {
	out := *b
	out.Pipelines = nil
	out.Index.Pipelines = make(map[string]*tree.Pipeline, len(b.Index.Pipelines))
	out.Index.Handlers = maps.Clone(b.Index.Handlers)
	out.Index.Serving, out.Index.Awaiting, out.Index.Kept = maps.Clone(b.Index.Serving), maps.Clone(b.Index.Awaiting), maps.Clone(b.Index.Kept)
	for _, p := range b.Pipelines {
		if !part[p.Span.File] {
			out.Pipelines = append(out.Pipelines, p)
			continue
		}
		eachHandler(p, func(h *tree.Handler) { delete(out.Index.Handlers, h.Path) })
		for _, event := range eventsOf(p) {
			delete(out.Index.Serving, event)
			delete(out.Index.Awaiting, event)
			delete(out.Index.Kept, event)
		}
	}
	for _, p := range from.Pipelines {
		if !part[p.Span.File] {
			continue
		}
		out.Pipelines = append(out.Pipelines, p)
		eachHandler(p, func(h *tree.Handler) { out.Index.Handlers[h.Path] = h })
		for _, event := range eventsOf(p) { // only pipelines of the part have anything to do with it
			copyEntry(out.Index.Serving, from.Index.Serving, event)
			copyEntry(out.Index.Awaiting, from.Index.Awaiting, event)
			copyEntry(out.Index.Kept, from.Index.Kept, event)
		}
	}
	slices.SortStableFunc(out.Pipelines, func(a, b *tree.Pipeline) int { return cmp.Compare(a.Span.File, b.Span.File) })
	for _, p := range out.Pipelines {
		out.Index.Pipelines[p.ID] = p
	}
	return &out
}

func copyEntry[V any](to, from map[string]V, key string) {
	if v, ok := from[key]; ok {
		to[key] = v
	}
}

// eachHandler visits the handlers of a pipeline, and their compensations.
func eachHandler(p *tree.Pipeline, visit func(*tree.Handler)) {
	for _, s := range p.Stages {
		for _, h := range s.Handlers {
			visit(h)
			if undo := h.Compensation(); undo != nil {
				visit(undo)
			}
		}
	}
}

// eventsOf lists the types of events that start a pipeline or that its runs await.
func eventsOf(p *tree.Pipeline) []string {
	events := slices.Clone([]string(p.On))
	eachHandler(p, func(h *tree.Handler) {
		if h.Await != nil {
			events = append(events, h.Await.Event...)
		}
	})
	return events
}
