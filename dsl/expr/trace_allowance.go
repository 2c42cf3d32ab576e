package expr

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"procaas/dsl/datum"
)

// The limits of a [Trace]. An expression creates little data, but a list that contains another one twice is
// printed twice, and so on for each level. So values are counted as printed.
const (
	maxTraced     = 100       // values of one part
	maxTraceNodes = 10_000    // scalars, lists and mappings of all values together
	maxTraceBytes = 256 << 10 // of JSON of all values together
	maxKeptNodes  = 500       // per value
	maxKeptBytes  = 8 << 10   // per value
)

// ellipsis marks an omission in a value.
const ellipsis = "…"

// An allowance is what may still be kept.
type allowance struct{ nodes, bytes int }

func (r *allowance) full() bool { return r.nodes <= 0 || r.bytes <= 0 }

// take uses some of the allowance. It returns false if there is not enough.
func (r *allowance) take(bytes int) bool {
	if r.full() {
		return false
	}
	r.nodes--
	r.bytes -= bytes
	return true
}

// keep copies a value as far as there is room. whole reports whether nothing is missing.
func (r *allowance) keep(v any) (kept any, whole bool) {
	own := allowance{nodes: min(r.nodes, maxKeptNodes), bytes: min(r.bytes, maxKeptBytes)}
	before := own
	kept, whole = own.copy(v, 0)
	r.nodes -= before.nodes - own.nodes
	r.bytes -= before.bytes - own.bytes
	return kept, whole
}

func (r *allowance) copy(v any, level int) (any, bool) {
	if level > datum.MaxLevels || !r.take(8) {
		return ellipsis, false
	}
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		return r.list(v, level)
	case map[string]any:
		return r.mapping(v, level)
	}
	return v, true
}

// text keeps the beginning of a text. A character prints as up to six bytes.
func (r *allowance) text(s string) (string, bool) {
	size := len(s)
	if !datum.IsPlainText(s) {
		size = 6 * len(s)
	}
	if size <= r.bytes {
		r.bytes -= size
		return s, true
	}
	n := min(len(s), max(0, r.bytes/6))
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	r.bytes = 0
	return strings.Clone(s[:n]) + ellipsis, false // a clone, since a slice would keep the rest in memory
}

func (r *allowance) list(list []any, level int) (any, bool) {
	out, whole := make([]any, 0, min(len(list), max(0, r.nodes)+1)), true
	for _, x := range list {
		if r.full() {
			return append(out, ellipsis), false
		}
		kept, all := r.copy(x, level+1)
		out, whole = append(out, kept), whole && all
	}
	return out, whole
}

// mapping keeps the first names in sorted order, so the same value is always cut in the same way.
func (r *allowance) mapping(m map[string]any, level int) (any, bool) {
	out, whole := map[string]any{}, true
	for _, name := range slices.Sorted(maps.Keys(m)) {
		text, all := r.text(name)
		if r.full() || !all {
			out[ellipsis] = ellipsis
			return out, false
		}
		kept, all := r.copy(m[name], level+1)
		out[text], whole = kept, whole && all
	}
	return out, whole
}
