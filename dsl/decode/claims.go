package decode

import (
	"cmp"
	"fmt"

	"procaas/dsl/tree"
)

// A Claim says which team looks after a part of a file.
type Claim struct {
	What  string // such as pipeline ping
	Owner string // empty for nobody
}

// Claims returns the claims on each file of the set, by its id. A file that others name, such as an OpenAPI document,
// belongs to the owners of these. A CODEOWNERS file belongs to nobody, since it says who owns others.
func (s *Set) Claims() map[string][]Claim {
	all := map[string][]Claim{}
	for _, f := range s.Files {
		if IsCodeOwners(f.Name) {
			all[cmp.Or(f.ID, f.Name)] = []Claim{{What: codeOwners}}
		}
	}
	for _, given := range s.Given {
		r := s.byName[given.Name]
		if r.doc == nil {
			continue
		}
		own := claimsOf(r.doc)
		all[r.key()] = append(all[r.key()], own...)
		seen := map[*Reading]bool{r: true}
		for open := r.references(); len(open) > 0; open = open[1:] {
			name, _, ok := open[0].from.Target(open[0].text, open[0].file)
			next := s.byName[name]
			if !ok || next == nil || seen[next] || next.doc != nil {
				continue
			}
			seen[next] = true
			all[next.key()] = append(all[next.key()], own...)
			open = append(open, next.references()...)
		}
	}
	return all
}

// key identifies the file on any machine.
func (r *Reading) key() string { return cmp.Or(r.ID, r.Name) }

// claimsOf lists what a file declares. What has no owner field belongs to the owner of the file.
func claimsOf(d *tree.Document) (all []Claim) {
	add := func(kind, id, owner string) {
		all = append(all, Claim{fmt.Sprintf("%s %s", kind, id), cmp.Or(owner, d.Owner)})
	}
	for _, p := range d.Pipelines {
		add("pipeline", p.ID, p.Owner)
	}
	for _, h := range d.Handlers {
		add("handler", h.ID, h.Owner)
	}
	for _, f := range d.Flows {
		add("flow", f.ID, f.Owner)
	}
	for _, s := range d.Services {
		add("service", s.ID, s.Owner)
	}
	for _, e := range d.Events {
		add("event", e.Type, e.Owner)
	}
	d.EachDeclaration(func(x tree.Declaration) { add(x.Kind, x.ID, *x.Owner) })
	for _, t := range d.Triggers {
		add("trigger", t.ID, "")
	}
	for _, t := range d.Templates {
		add("template", t.ID, "")
	}
	if d.Configs != nil || d.ConfigSchemas != nil || d.Schemas != nil {
		all = append(all, Claim{"what else it declares", d.Owner})
	}
	return all
}
