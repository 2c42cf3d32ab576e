package decode

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// codeOwners is the name of the file with the owners of files, as on GitHub and GitLab.
const codeOwners = "CODEOWNERS"

// IsCodeOwners reports whether a file is a CODEOWNERS file.
func IsCodeOwners(name string) bool { return path.Base(name) == codeOwners }

// CodeOwnersPlaces are the possible places of a CODEOWNERS file, relative to the root of its patterns.
var CodeOwnersPlaces = []string{codeOwners, ".github/" + codeOwners, ".gitlab/" + codeOwners, "docs/" + codeOwners}

// owners are the rules of one CODEOWNERS file.
type owners struct {
	file  diag.File
	root  string // root of its patterns, with a slash; empty for the working directory
	rules []ownersRule
	used  bool // a pattern matches some file of the set
}

type ownersRule struct {
	pattern []string // parts between slashes; ** matches any number of parts
	owners  []string // names as in pipelines; empty for nobody
	line    int      // from 1
}

// codeOwnersOf separates the CODEOWNERS files of a set. Those of the deepest directories come first.
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
	var section []string // owners of a GitLab section, for its patterns without owners
	number := 0
	for line := range strings.Lines(string(f.Data)) {
		number++
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
		o.rules = append(o.rules, ownersRule{ownersPattern(strings.ReplaceAll(words[0], "\x00", " ")), named, number})
	}
	return o
}

// ownerNames converts owners of a CODEOWNERS file to names: @acme/team-points becomes team-points.
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

// ownersPattern splits a pattern. A pattern that names a directory matches all files below it, except docs/*,
// which matches only the files directly in docs.
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

// of returns the owners of a file. It returns false if no pattern matches.
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

// matchParts matches a path. Only the last ** needs to backtrack, since it can match everything that an earlier one
// could.
func matchParts(pattern, name []string) bool {
	p, n := 0, 0
	star, mark := -1, 0
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

// names reports whether the file names an owner.
func (o *owners) names(owner string) bool {
	return slices.ContainsFunc(o.rules, func(r ownersRule) bool { return slices.Contains(r.owners, owner) })
}

// checkOwners refuses owners in a file that a CODEOWNERS file gives to others. The owner decides which secrets a
// service gets, so a refused one is also replaced by the first that the CODEOWNERS file lists.
func (s *Set) checkOwners(r *Reading, o *owners, listed []string) {
	check := func(owner *string, at diag.Span) {
		if s.checkClaim(o, listed, *owner, at, "delete owner, or give the file to %s in %s") {
			return
		}
		*owner = ""
		if len(listed) > 0 {
			*owner = listed[0]
		}
	}
	if at := r.Root.Get("owner"); at != nil {
		check(&r.doc.Owner, at.Span)
	}
	r.doc.EachOwner(check)
}

// checkClaim refuses an owner that a CODEOWNERS file does not list for the file at this position. If it lists nobody for
// that file, it refuses only the owners of other files. The hint has verbs for the owner and for the CODEOWNERS file.
func (s *Set) checkClaim(o *owners, listed []string, owner string, at diag.Span, hint string) (ok bool) {
	if owner == "" || slices.Contains(listed, owner) || len(listed) == 0 && !o.names(owner) {
		return true
	}
	s.Errorf(at, rules.Contribution, fmt.Sprintf(hint, owner, o.file.Name),
		"%s gives this file to %s, not to %s", o.file.Name, nobodyOr(listed), owner)
	return false
}

// checkNested refuses names in a CODEOWNERS file that another one around it assigns to other files only. Otherwise a
// team could take any name by a CODEOWNERS file in its own directory.
func (s *Set) checkNested(all []*owners) {
	for i, o := range all {
		for j, outer := range all {
			if i == j || !strings.HasPrefix(o.root, outer.root) || o.root == outer.root && i < j {
				continue
			}
			listed, _ := outer.of(o.file.Name)
			for _, rule := range o.rules {
				for _, owner := range rule.owners {
					at := diag.Span{File: o.file.Name, Start: diag.Pos{Line: rule.line, Column: 1}}
					at.End = at.Start
					if !outer.names(owner) {
						continue // a part of a team, which the outer file need not know
					}
					s.checkClaim(outer, listed, owner, at, "delete the line, or give the file to %s in %s")
				}
			}
		}
	}
}

// own makes the first owner in the nearest CODEOWNERS file with a matching pattern the owner of a file. It
// refuses another owner in the file itself.
func (s *Set) own(r *Reading, all []*owners) {
	for _, o := range all {
		listed, found := o.of(r.Name)
		if !found {
			continue
		}
		o.used = true
		s.checkOwners(r, o, listed)
		if r.doc.Owner == "" && len(listed) > 0 {
			r.doc.Owner = listed[0]
		}
		return
	}
	for _, o := range all { // none lists the file
		if strings.HasPrefix(r.Name, o.root) {
			s.checkOwners(r, o, nil)
		}
	}
}

func nobodyOr(owners []string) string {
	if len(owners) == 0 {
		return "nobody"
	}
	return strings.Join(owners, ", ")
}
