package decode

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// codeOwners is the name of a file that says who owns which files, as GitHub and GitLab read it.
const codeOwners = "CODEOWNERS"

// IsCodeOwners reports whether a file is a CODEOWNERS file.
func IsCodeOwners(name string) bool { return path.Base(name) == codeOwners }

// CodeOwnersPlaces are the places of a CODEOWNERS file below the directory that its patterns begin at.
var CodeOwnersPlaces = []string{codeOwners, ".github/" + codeOwners, ".gitlab/" + codeOwners, "docs/" + codeOwners}

// owners are the rules of one CODEOWNERS file.
type owners struct {
	file  diag.File
	root  string // the directory that its patterns begin at, with a slash; empty for the working directory
	rules []ownersRule
	used  bool // some file of the set has a pattern
}

type ownersRule struct {
	pattern []string // the parts between slashes; ** stands for any number of them
	owners  []string // names as flows write them; empty for nobody
}

// codeOwnersOf takes the CODEOWNERS files out of a set; those of the deepest directories come first.
func codeOwnersOf(files []diag.File) (all []*owners, rest []diag.File) {
	for _, f := range files {
		if IsCodeOwners(f.Name) {
			all = append(all, parseOwners(f))
			continue
		}
		rest = append(rest, f)
	}
	slices.SortStableFunc(all, func(a, b *owners) int { return len(b.root) - len(a.root) })
	return all, rest
}

func parseOwners(f diag.File) *owners {
	dir := path.Dir(f.Name)
	if base := path.Base(dir); slices.Contains(CodeOwnersPlaces[1:], base+"/"+codeOwners) {
		dir = path.Dir(dir)
	}
	o := &owners{file: f}
	if dir != "." {
		o.root = strings.TrimSuffix(dir, "/") + "/"
	}
	var section []string // the owners of a section of GitLab, for its patterns without any
	for line := range strings.Lines(string(f.Data)) {
		line = strings.TrimSpace(line)
		if header := strings.TrimPrefix(line, "^"); strings.HasPrefix(header, "[") {
			section = ownerNames(strings.Fields(header[strings.LastIndex(header, "]")+1:]))
			continue
		}
		words := strings.Fields(strings.ReplaceAll(line, `\ `, "\x00"))
		if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
			words = words[:i]
		}
		if len(words) == 0 {
			continue
		}
		named := ownerNames(words[1:])
		if len(named) == 0 {
			named = section
		}
		o.rules = append(o.rules, ownersRule{ownersPattern(strings.ReplaceAll(words[0], "\x00", " ")), named})
	}
	return o
}

// ownerNames makes names of owners of those of a CODEOWNERS file: team-points of @acme/team-points.
func ownerNames(words []string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, "@") {
			w = strings.TrimLeft(w[strings.LastIndex(w, "/")+1:], "@")
		}
		out = append(out, w)
	}
	return out
}

// ownersPattern splits a pattern. It means files below a directory that it names, except docs/*, which
// means those in docs alone.
func ownersPattern(text string) []string {
	parts := strings.Split(strings.Trim(text, "/"), "/")
	if !strings.Contains(strings.TrimSuffix(text, "/"), "/") {
		parts = append([]string{"**"}, parts...)
	}
	if last := parts[len(parts)-1]; strings.HasSuffix(text, "/") || !strings.ContainsAny(last, "*?") {
		parts = append(parts, "**")
	}
	return parts
}

// of lists who owns a file; false when no pattern names it.
func (o *owners) of(name string) ([]string, bool) {
	rel, below := strings.CutPrefix(name, o.root)
	if !below || path.IsAbs(rel) || strings.HasPrefix(rel, "../") {
		return nil, false
	}
	parts := strings.Split(rel, "/")
	for _, r := range slices.Backward(o.rules) {
		if matchParts(r.pattern, parts) {
			return r.owners, true
		}
	}
	return nil, false
}

// matchParts matches a path. Only the last ** so far has to try again: what it took, an earlier one could take as well.
func matchParts(pattern, name []string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == "**" {
			star, mark = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, err := path.Match(pattern[p], name[n]); ok && err == nil {
				p, n = p+1, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		p, n = star+1, mark
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// names reports whether the file names an owner anywhere.
func (o *owners) names(owner string) bool {
	return slices.ContainsFunc(o.rules, func(r ownersRule) bool { return slices.Contains(r.owners, owner) })
}

// own gives a file to its first owner in the nearest CODEOWNERS file that has a pattern for it, and refuses another one's name
// in it.
func (s *Set) own(r *Reading, all []*owners) {
	for _, o := range all {
		listed, found := o.of(r.Name)
		if !found {
			continue
		}
		o.used = true
		check := func(owner string, at diag.Span) {
			if owner != "" && !slices.Contains(listed, owner) && o.names(owner) {
				s.Errorf(at, rules.Contribution, fmt.Sprintf("delete owner, or add %s to the line of this file in %s", owner, o.file.Name),
					"%s gives this file to %s, not to %s", o.file.Name, nobodyOr(listed), owner)
			}
		}
		if at := r.Root.Get("owner"); at != nil {
			check(r.doc.Owner, at.Span)
		}
		r.doc.EachOwner(func(owner *string, at diag.Span) { check(*owner, at) })
		if r.doc.Owner == "" && len(listed) > 0 {
			r.doc.Owner = listed[0]
		}
		return
	}
}

func nobodyOr(owners []string) string {
	if len(owners) == 0 {
		return "nobody"
	}
	return strings.Join(owners, ", ")
}
