package tree

import (
	"reflect"
	"slices"

	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/typing"
)

// A Section is what an add-on adds to the language: a field of files, or of a mapping in them.
type Section struct {
	// Of describes a struct with a single field, that of the section. Its key, its type and its comment are those of the
	// section. Without the section in a file, the field is not set: it is a pointer or a list, and has no default.
	Of *spec.Spec

	// In is "" for a field of the top level, or "pipelines" for one of pipelines.
	In string

	// After is the key of the field before it in schemas and pages. Without it the section is the last one.
	After string

	// Rules documents the findings of Check. It is called when somebody asks for them.
	Rules func() []rules.Rule

	// Check reports the mistakes of a value. It may also complete the value: nothing has read it yet.
	Check func(value any, c *Checking)

	// Each visits what a value of the top level declares. Nil declares nothing.
	Each func(value any, visit func(Declaration))
}

// Key returns the YAML key of the section.
func (s *Section) Key() string { return s.field().Name }

func (s *Section) field() *spec.Field {
	if len(s.Of.Fields) != 1 {
		panic("tree: " + s.Of.Name + " is the struct of a section, and must have one field")
	}
	return s.Of.Fields[0]
}

// A Declaration is something with an id that a section declares. From it follow the checks for duplicates and owners,
// the files that are read, and the owner of a secret's receiver.
type Declaration struct {
	Kind string // as messages name it
	ID   string
	Span diag.Span // of all of it
	At   diag.Span // of the id

	Owner   *string
	OwnerAt diag.Span

	Secret string // that it is sent; empty for none

	// Service says how calls to it are limited and watched, as those to a declared service. Its id is that of the declaration, which no
	// declared service has. Nil for what handlers do not call, see [Type.Peer].
	Service *Service

	// Path is where operators may hold what the declaration does by itself. Empty is for one that waits for others.
	Path string

	// Event is the type of the events that it brings in, and From says for people where they come from. Event is empty for none,
	// and for types that only what comes tells.
	Event, From string

	File   string // that the declaration names; empty for none
	FileAt diag.Span
}

// A Checking is what the check of a section sees beside a value, and where it reports.
type Checking struct {
	*diag.Reporter

	Bundle   *Bundle
	Pipeline *Pipeline                  // that has the field; nil for a section of the top level
	Payload  *typing.Outline            // of the events of Pipeline; nil if it may be anything
	Files    map[string]*contracts.File // by name

	// Partial reports whether a file could not be read. Then a missing name is not an error.
	Partial bool

	// Blamed reports whether reading found an error inside a span.
	Blamed func(at diag.Span) bool

	// Fits reports where a payload does not fit the schema of its type of events. Its expressions are compiled. It is nil for
	// a field of pipelines.
	Fits func(event string, payload *expr.Value)

	// Declare records a name. It reports a duplicate in the bundle, and returns whether the name is new. It is nil for a
	// field of pipelines, which are checked in parallel.
	Declare func(kind, name string, at diag.Span, r *diag.Reporter) bool
}

// A Start is a field of a pipeline that starts its runs, with or without events.
type Start interface {
	// ServesAlone reports whether the pipeline needs no stages: others do its work.
	ServesAlone() bool

	// Dedups reports whether one that starts a run may find that the run exists. So it need not start another.
	Dedups() bool
}

// In returns what the files of a bundle have in a section of the top level.
func In[T any](b *Bundle, key string) []T {
	all, _ := b.AddedField(key).([]T)
	return all
}

// FieldOf returns the value of a field of an add-on, or zero if the pipeline does not have it.
func FieldOf[T any](p *Pipeline, key string) T {
	v, _ := p.AddedField(key).(T)
	return v
}

// Start returns the field of an add-on that starts runs of the pipeline, or nil.
func (p *Pipeline) Start() Start {
	for _, v := range p.added {
		if s, ok := v.(Start); ok {
			return s
		}
	}
	return nil
}

// HasSections reports whether the document has anything in the sections of add-ons.
func (d *Document) HasSections() bool { return len(d.added) > 0 }

// Join adds what a document has in the sections of the top level.
func (b *Bundle) Join(d *Document) {
	for key, more := range d.added {
		v := reflect.ValueOf(more)
		if all := b.AddedField(key); all != nil {
			v = reflect.AppendSlice(reflect.ValueOf(all), v)
		}
		b.KeepField(key, v.Interface())
	}
}

// EachDeclaration visits what the sections of add-ons declare in the document.
func (d *Document) EachDeclaration(visit func(Declaration)) {
	eachDeclaration(d.Language, d.added, visit)
}

// EachDeclaration visits what the sections of add-ons declare.
func (b *Bundle) EachDeclaration(visit func(Declaration)) {
	eachDeclaration(b.Language, b.added, visit)
}

// Peers lists the declared services, and behind them what else handlers call.
func (b *Bundle) Peers() []*Service {
	all := slices.Clone(b.Services)
	b.EachDeclaration(func(x Declaration) {
		if x.Service != nil {
			all = append(all, x.Service)
		}
	})
	return all
}

// HasPeersOf reports whether handlers of both bundles call the same.
func (b *Bundle) HasPeersOf(other *Bundle) bool {
	return slices.EqualFunc(b.Peers(), other.Peers(), func(x, y *Service) bool { return reflect.DeepEqual(x, y) })
}

func eachDeclaration(l *Language, added spec.Added, visit func(Declaration)) {
	if len(added) == 0 {
		return
	}
	for _, s := range l.Sections("") {
		if v := added.AddedField(s.Key()); v != nil && s.Each != nil {
			s.Each(v, visit)
		}
	}
}
