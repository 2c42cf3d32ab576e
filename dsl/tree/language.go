package tree

import (
	"embed"
	"reflect"
	"slices"
	"sync"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
)

//go:embed tree.go auth.go await.go bound.go call.go choose.go contribution.go compensate.go each.go error.go events.go flow.go
//go:embed handler.go loop.go notify.go pipeline.go retry.go template.go trigger.go
var treeFiles embed.FS

var comments = sync.OnceValue(func() spec.Sources { return spec.Read(treeFiles) })

// A Language is what the files of a bundle may say: the core of the language, and the sections of add-ons. It is made
// once, and nobody changes it. Nil is the core alone.
type Language struct {
	file     *spec.Spec // of the top level of a file
	sections []Section  // in the order of the fields
	rules    func() []rules.Rule
}

var core = sync.OnceValue(func() *Language { return NewLanguage() })

// NewLanguage makes the language with the sections of add-ons. Their order does not matter.
func NewLanguage(sections ...Section) *Language {
	l := &Language{file: spec.OfFile(reflect.TypeFor[Document](), comments()), sections: slices.Clone(sections)}
	for _, s := range sections {
		l.holder(s).Take(s.field(), s.After)
	}
	slices.SortStableFunc(l.sections, func(a, b Section) int {
		return slices.Index(l.holder(a).Names(), a.Key()) - slices.Index(l.holder(b).Names(), b.Key())
	})
	// Few processes explain a rule, so the files are read when one does.
	l.rules = sync.OnceValue(func() []rules.Rule {
		var more []rules.Rule
		for _, s := range l.sections {
			if s.Rules != nil {
				more = append(more, s.Rules()...)
			}
		}
		return rules.All(more...)
	})
	return l
}

// holder returns the mapping that has the field of a section.
func (l *Language) holder(s Section) *spec.Spec {
	if s.In == "" {
		return l.file
	}
	return l.file.Field(s.In).Elem.Spec
}

// File describes the top level of a file.
func (l *Language) File() *spec.Spec { return l.orCore().file }

// Rules lists the rules that files must keep, in the order of their codes.
func (l *Language) Rules() []rules.Rule { return l.orCore().rules() }

// Rule returns the rule of a code.
func (l *Language) Rule(code diag.Code) (rules.Rule, bool) {
	for _, rule := range l.Rules() {
		if rule.Code == code {
			return rule, true
		}
	}
	return rules.Rule{}, false
}

// Sections lists the sections of add-ons with the given place, in the order of the fields: those of pipelines, or those
// of the top level of files for "".
func (l *Language) Sections(in string) []Section {
	var out []Section
	for _, s := range l.orCore().sections {
		if s.In == in {
			out = append(out, s)
		}
	}
	return out
}

func (l *Language) orCore() *Language {
	if l == nil {
		return core()
	}
	return l
}
