package dsl

import (
	"procaas/dsl/diag"
	"procaas/dsl/tree"
)

// connections finds the files of a set whose pipelines have to do with each other. Whatever connects pipelines is a name: that of a
// pipeline, a flow or an event. Files are connected if one has such a name and the text of the other has it, too, be it by chance.
type connections struct {
	set   *loaded
	types tree.Types
	names map[string]bool            // all such names
	of    map[string]map[string]bool // by file, those that its pipelines have
	words map[string]map[string]bool // by file, the words of its text; those that were not asked for are missing
}

// connectionsOf returns the connections of a set. It is nil if a pipeline is connected with all others.
func connectionsOf(l *loaded) *connections {
	c := &connections{
		set: l, types: tree.Types{}, names: map[string]bool{}, of: map[string]map[string]bool{}, words: map[string]map[string]bool{},
	}
	for _, t := range l.options.Types {
		c.types[t.Name] = t
	}
	if !c.note(l.bundle.Pipelines) {
		return nil
	}
	return c
}

// after returns the connections of the next set, in which the files of a part have changed. Names that only these files had stay: files
// that are taken to be connected are loaded needlessly, and nothing else.
func (c *connections) after(next *loaded, part map[string]bool) *connections {
	for name := range part {
		delete(c.of, name)
		delete(c.words, name)
	}
	c.set = next
	var changed []*tree.Pipeline
	for _, p := range next.bundle.Pipelines {
		if part[p.Span.File] {
			changed = append(changed, p)
		}
	}
	c.note(changed)
	return c
}

// note adds the names of pipelines. It returns false if one of them may be connected with any other.
func (c *connections) note(pipelines []*tree.Pipeline) bool {
	known := true
	for _, p := range pipelines {
		file := p.Span.File
		if c.of[file] == nil {
			c.of[file] = map[string]bool{}
		}
		add := func(names ...string) {
			for _, name := range names {
				if name == "" {
					continue
				}
				known = known && isWord(name)
				c.names[name], c.of[file][name] = true, true
			}
		}
		add(p.ID, p.Flow)
		add(eventsOf(p)...)
		eachHandler(p, func(h *tree.Handler) {
			if h.Call != nil {
				add(h.Call.Pipeline)
			}
			if e, ok := c.types.Emission(h); ok && e.Type != nil {
				name, fixed := e.Type.Text()
				add(name)
				known = known && fixed // a computed type may be any
			}
		})
	}
	return known
}

// extend adds to a part the files that are connected with it, in the set or as it was loaded now. It returns false if all files must
// be loaded.
func (c *connections) extend(part map[string]bool, now *tree.Bundle, files []diag.File) bool {
	var changed []*tree.Pipeline
	for _, p := range now.Pipelines {
		if part[p.Span.File] {
			changed = append(changed, p)
		}
	}
	if !c.note(changed) {
		return false
	}
	reached := map[string]bool{} // names that the part has, or has in its text
	for name := range part {
		for n := range c.of[name] {
			reached[n] = true
		}
	}
	for i, f := range files {
		if part[f.Name] {
			for _, text := range [][]byte{f.Data, c.set.files[i].Data} {
				eachWord(text, func(word []byte) {
					if c.names[string(word)] {
						reached[string(word)] = true
					}
				})
			}
		}
	}
	for _, f := range files {
		if part[f.Name] || !c.isReached(f, reached) {
			continue
		}
		switch {
		case c.set.plain[f.Name]:
			part[f.Name] = true
		case c.of[f.Name] != nil:
			return false // its pipelines would have to be replaced with all that it shares
		}
	}
	return 2*len(part) <= len(files) || len(part) == 1
}

// isReached reports whether a file has one of some names.
func (c *connections) isReached(f diag.File, names map[string]bool) bool {
	words := c.words[f.Name]
	if words == nil {
		words = map[string]bool{}
		eachWord(f.Data, func(word []byte) {
			if !words[string(word)] {
				words[string(word)] = true
			}
		})
		c.words[f.Name] = words
	}
	for n := range names {
		if c.of[f.Name][n] || words[n] {
			return true
		}
	}
	return false
}

// eachWord visits the words of a text.
func eachWord(text []byte, visit func([]byte)) {
	from := -1
	for i, b := range text {
		switch {
		case isOfWord(b) && from < 0:
			from = i
		case !isOfWord(b) && from >= 0:
			visit(text[from:i])
			from = -1
		}
	}
	if from >= 0 {
		visit(text[from:])
	}
}

// isWord reports whether a name is one word, so that it is found in a text.
func isWord(name string) bool {
	for i := range len(name) {
		if !isOfWord(name[i]) {
			return false
		}
	}
	return true
}

// isOfWord reports whether a byte is a part of words. Parts of names in paths, which have slashes, are words.
func isOfWord(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_' || b == '.' || b >= 0x80
}
