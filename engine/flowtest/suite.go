package flowtest

import (
	"path"
	"slices"
	"strings"
	"time"

	"procaas/dsl/decode"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/planner"
	"procaas/engine/store"
)

// A Suite is a file of tests with the pipelines that they are about.
type Suite struct {
	Name   string // of the file
	File   *File
	Bundle *tree.Bundle

	env   Env
	stubs func() (engine.Stubs, error)
	plans map[string]*planner.Plan
	types tree.Types
	names names
}

// An Env is what all suites of a process share.
type Env struct {
	// Types are the handler types.
	Types []engine.HandlerType

	// Alone are the types whose handlers do their own work when they have no mock;
	// all do when it is empty.
	Alone []string

	// Progress is called from several goroutines after each thousandth call that a test makes. It may be nil.
	Progress func(file, test string, calls, most int)

	// Store makes an empty store that goes by a clock.
	Store func(now func() time.Time) store.Store
}

// Parse reads a file of tests. The file is nil exactly when one of the findings is
// an error.
func Parse(f diag.File) (*File, []diag.Diagnostic) {
	var file File
	found := decode.File(f, Spec(), &file, &expr.Scope{Roots: []string{"request", "calls", "value"}})
	if diag.HasErrors(found) {
		return nil, found
	}
	return &file, found
}

// JSONSchema returns the JSON Schema of files of tests, for editors.
func JSONSchema() ([]byte, error) { return tree.FileSchema("ProcaaS tests", Spec()) }

// Reference lists the mappings of a file of tests by their place, each once.
func Reference() []tree.Type {
	const whole = "*.test.yaml"
	out := []tree.Type{{Name: whole, Spec: Spec()}}
	for i := 0; i < len(out); i++ {
		for _, f := range out[i].Spec.Fields {
			inner, at := f, out[i].Name+"."+f.Name
			for inner.Elem != nil {
				inner = inner.Elem
			}
			known := slices.ContainsFunc(out, func(t tree.Type) bool { return t.Spec == inner.Spec })
			if inner.Spec != nil && !known {
				out = append(out, tree.Type{Name: strings.TrimPrefix(at, whole+"."), Spec: inner.Spec})
			}
		}
	}
	return out
}

// Paths returns the files and directories with the pipelines of a file of tests.
func (f *File) Paths(name string) []string { return beside(name, f.Pipelines, ".") }

// StubPaths returns its files of stub services.
func (f *File) StubPaths(name string) []string { return beside(name, f.Stubs) }

// beside returns paths as they are seen from a file.
func beside(name string, paths []string, otherwise ...string) []string {
	if len(paths) == 0 {
		paths = otherwise
	}
	var out []string
	for _, p := range paths {
		if !path.IsAbs(p) {
			p = path.Join(path.Dir(name), p)
		}
		out = append(out, p)
	}
	return out
}

// NewSuite checks a file of tests with its pipelines. Stubs may be nil. The suite
// is nil exactly when one of the findings is an error.
func NewSuite(name string, f *File, b *tree.Bundle, stubs func() (engine.Stubs, error), env Env) (*Suite, []diag.Diagnostic) {
	s := &Suite{Name: name, File: f, Bundle: b, env: env, stubs: stubs, plans: map[string]*planner.Plan{}, names: newNames(b)}
	types := engine.Types(env.Types)
	s.types = tree.Types{}
	for _, t := range types {
		s.types[t.Name] = t
	}
	c := checker{suite: s}
	for _, p := range b.Pipelines {
		plan, err := planner.New(b, p, types)
		if err != nil {
			c.Errorf(diag.Span{File: name}, rules.TestName, "", "%s", err)
			continue
		}
		s.plans[p.ID] = plan
	}
	c.file(f)
	found := c.Diagnostics()
	if diag.HasErrors(found) {
		return nil, found
	}
	return s, found
}
