package planner

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// This file finds the pairs of handlers that depend on each other. A stage may have thousands of handlers, and all of
// them may depend on each other. So nothing here keeps or compares all pairs: time and memory grow with what the
// handlers read, write and touch.

// An Edge says that To waits for From.
type Edge struct{ From, To *Step } // both of one stage; From is declared first

// A Reason is why one handler waits for another, and the conflicting places in the files.
type Reason struct {
	Why              string    // "notify-driver reads shared-state.order, which get-order writes"
	FromSpan, ToSpan diag.Span // or the handlers themselves
}

// Reason returns why To waits for From.
func (e Edge) Reason() Reason { return depend(e.From, e.To) }

// Waits yields the earlier handlers of the stage that s waits for. One may come several times.
//
// It yields every handler that s depends on, even if others in between imply it. If a handler in between is off, the
// pair still has to keep its order.
func (s *Step) Waits() iter.Seq[*Step] {
	return func(yield func(*Step) bool) {
		for _, group := range s.Groups {
			for _, earlier := range slices.Backward(group) { // the last ones are decided last
				if !apart(earlier, s) && !yield(earlier) {
					return
				}
			}
		}
	}
}

// After lists the edges to s in the order of declaration.
func (s *Step) After() []Edge {
	earlier := slices.Collect(s.Waits())
	slices.SortFunc(earlier, func(a, b *Step) int { return a.Index - b.Index })
	earlier = slices.Compact(earlier)
	edges := make([]Edge, len(earlier))
	for i, e := range earlier {
		edges[i] = Edge{From: e, To: s}
	}
	return edges
}

// Implied reports whether another edge of s leads to a handler that waits for the same one, so that
// a picture can omit e.
func (s *Step) Implied(e Edge) bool { return !slices.Contains(s.direct, e.From) }

// WaitsFor reports whether s comes after earlier by a chain of edges.
func (s *Step) WaitsFor(earlier *Step) bool {
	seen := map[*Step]bool{}
	open := []*Step{s}
	for len(open) > 0 {
		last := open[len(open)-1]
		open = open[:len(open)-1]
		for _, next := range last.direct {
			if next == earlier {
				return true
			}
			if next.Index > earlier.Index && !seen[next] {
				seen[next] = true
				open = append(open, next)
			}
		}
	}
	return false
}

// apart reports whether only one of two handlers of a stage ever runs, because they are in different branches.
func apart(a, b *Step) bool {
	return a.Handler.Branch != b.Handler.Branch && a.Handler.Branch != nil && b.Handler.Branch != nil
}

// A place is what handlers share: a name of the shared state, or the outcome of a handler.
type place struct{ root, name string }

// placeOf returns the place of a path. whole means that the path may be any place of its root. Nothing that is written
// is longer than a place, so a longer path overlaps with just as much.
func placeOf(p datum.Path) (at place, whole bool) {
	if len(p) < 2 || p[1] == datum.Wildcard {
		return place{root: p[0]}, true
	}
	return place{p[0], p[1]}, false
}

// A sharing knows what the handlers of a stage share, while they are added in the order of declaration.
type sharing struct {
	readers map[place][]*Step
	writers map[place][]*Step
	all     map[string]sides // by root: those that read all of it, and those that write any of it
	touches map[string][]*Step

	// last has the last handler of each place that waits for all earlier ones there, because it writes and is in no
	// branch.
	last map[place]*Step

	steps []*Step  // all handlers so far
	reach []bitset // of each, the indexes of all that it comes after; nil for none

	looked int // how often a handler was looked at for another one, for tests
}

// sides are the two sides of a conflict.
type sides struct{ readers, writers []*Step }

func newSharing() *sharing {
	return &sharing{
		readers: map[place][]*Step{}, writers: map[place][]*Step{}, all: map[string]sides{}, touches: map[string][]*Step{},
		last: map[place]*Step{},
	}
}

// join gives a handler the groups of earlier ones that it waits for. A group is the beginning of a list that grows, so it
// takes no memory of its own.
func (w *sharing) join(s *Step) {
	read, written := placesOf(s)
	var before bitset // candidates for direct edges
	add := func(group []*Step, from int) {
		if len(group) == 0 {
			return
		}
		s.Groups = append(s.Groups, slices.Clip(group))
		for _, earlier := range slices.Backward(group) {
			w.looked++
			if earlier.Index < from {
				break // waited for by the handler at from, for which s waits, too
			}
			if !apart(earlier, s) {
				before = before.with(earlier.Index)
			}
		}
	}
	for at, whole := range read {
		if whole {
			add(w.all[at.root].writers, 0)
		} else {
			add(w.writers[at], w.from(at))
		}
	}
	for at := range written {
		add(w.writers[at], w.from(at))
		add(w.readers[at], w.from(at))
		add(w.all[at.root].readers, 0)
	}
	for _, t := range s.Touches {
		add(w.touches[t], w.from(place{name: t}))
	}
	w.register(s, read, written)
	w.findDirect(s, before)
}

// from returns the index of the last handler of a place that waits for all earlier ones, or 0.
func (w *sharing) from(at place) int {
	if s := w.last[at]; s != nil {
		return s.Index
	}
	return 0
}

// placesOf returns what a handler reads, with whether it reads the whole root, and what it writes.
func placesOf(s *Step) (read, written map[place]bool) {
	read, written = map[place]bool{}, map[place]bool{}
	for _, r := range s.Reads {
		at, whole := placeOf(r.Path)
		read[at] = whole
	}
	for _, x := range s.Writes {
		at, _ := placeOf(x.Path)
		written[at] = true
	}
	return read, written
}

// register adds a handler to the lists.
func (w *sharing) register(s *Step, read, written map[place]bool) {
	for at, whole := range read {
		if whole {
			side := w.all[at.root]
			side.readers = append(side.readers, s)
			w.all[at.root] = side
		} else {
			w.readers[at] = append(w.readers[at], s)
		}
	}
	roots := map[string]bool{}
	for at := range written {
		roots[at.root] = true
		w.writers[at] = append(w.writers[at], s)
		if s.Handler.Branch == nil {
			w.last[at] = s
		}
	}
	for root := range roots {
		side := w.all[root]
		side.writers = append(side.writers, s)
		w.all[root] = side
	}
	for _, t := range s.Touches {
		w.touches[t] = append(w.touches[t], s)
		if s.Handler.Branch == nil {
			w.last[place{name: t}] = s
		}
	}
}

// findDirect finds the edges of s that no others imply. A chain from an edge to an earlier one goes through handlers in
// between. So it is enough to go backwards, and to skip what those that were found come after.
func (w *sharing) findDirect(s *Step, before bitset) {
	var reach bitset
	for i := before.last(len(before)*wordBits - 1); i >= 0; i = before.last(i - 1) {
		w.looked++
		if reach.has(i) {
			continue
		}
		s.direct = append(s.direct, w.steps[i])
		reach = reach.with(i).union(w.reach[i])
	}
	w.reach = append(w.reach, reach)
	w.steps = append(w.steps, s)
}

// depend returns why b waits for a, which is declared earlier, and the conflicting places in the files.
func depend(a, b *Step) Reason {
	out := Reason{FromSpan: a.Handler.Span, ToSpan: b.Handler.Span}
	if w, r, ok := Overlap(a, b); ok {
		out.FromSpan, out.ToSpan = w.Span, r.Span
		out.Why = fmt.Sprintf("%s reads %s, which %s writes", b.Handler.ID, r.Path, a.Handler.ID)
		if w.Path[0] == SourcesRoot {
			out.Why = fmt.Sprintf("%s reads %s, the outcome of %s", b.Handler.ID, r.Path, a.Handler.ID)
		}
		return out
	}
	for _, w := range a.Writes {
		for _, v := range b.Writes {
			if w.Path.Overlaps(v.Path) {
				out.FromSpan, out.ToSpan = w.Span, v.Span
				out.Why = fmt.Sprintf("%s and %s both write %s", a.Handler.ID, b.Handler.ID, v.Path)
				return out
			}
		}
	}
	if w, r, ok := Overlap(b, a); ok {
		out.FromSpan, out.ToSpan = r.Span, w.Span
		out.Why = fmt.Sprintf("%s writes %s, which %s reads before", b.Handler.ID, w.Path, a.Handler.ID)
		return out
	}
	for _, t := range a.Touches {
		if slices.Contains(b.Touches, t) {
			out.Why = fmt.Sprintf("%s and %s both touch %s", a.Handler.ID, b.Handler.ID, t)
			return out
		}
	}
	return out
}

// Overlap returns the first read of reader that a write of writer may change.
func Overlap(writer, reader *Step) (Write, datum.Read, bool) {
	for _, r := range reader.Reads {
		for _, w := range writer.Writes {
			if w.Path.Overlaps(r.Path) {
				return w, r, true
			}
		}
	}
	return Write{}, datum.Read{}, false
}

// A bitset is a set of small numbers. The zero value is empty.
type bitset []uint64

const wordBits = 64

// has reports whether i is in the set.
func (b bitset) has(i int) bool { return i/wordBits < len(b) && b[i/wordBits]>>(i%wordBits)&1 == 1 }

// with adds i.
func (b bitset) with(i int) bitset {
	b = b.grown(i/wordBits + 1)
	b[i/wordBits] |= 1 << (i % wordBits)
	return b
}

// union adds the numbers of another set.
func (b bitset) union(o bitset) bitset {
	b = b.grown(len(o))
	for i, word := range o {
		b[i] |= word
	}
	return b
}

func (b bitset) grown(words int) bitset {
	if words > len(b) {
		b = append(b, make(bitset, words-len(b))...)
	}
	return b
}

// last returns the largest number up to i, or -1.
func (b bitset) last(i int) int {
	for ; i >= 0; i = i/wordBits*wordBits - 1 {
		if word := b[i/wordBits] << (wordBits - 1 - i%wordBits); word != 0 {
			return i - bits.LeadingZeros64(word)
		}
	}
	return -1
}
