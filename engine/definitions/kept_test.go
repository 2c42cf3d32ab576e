package definitions

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// bundleOf returns a definition with one pipeline, whose file is large.
func bundleOf(t *testing.T, id string, size int) *tree.Bundle {
	t.Helper()
	text := fmt.Appendf(nil, "pipelines: [{id: %s, stages: [{id: s, handlers: [{id: h, set: {}}]}]}]\n#", id)
	text = append(text, bytes.Repeat([]byte("x"), size)...)
	b, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: text}}, dsl.Options{Types: setTypes()})
	if b == nil {
		t.Fatal(found)
	}
	return b
}

func setTypes() []tree.Type { return []tree.Type{{Name: "set", Spec: &spec.Spec{}}} }

// held returns how many definitions are in memory after the garbage has been collected.
func held(l *Library) int {
	runtime.GC()
	return len(l.kept.all())
}

// However often a large definition is loaded, only the current one stays, and those that runs hold. What a run holds is
// found, so that there is no second copy of it.
func TestOnlyDefinitionsInUseStay(t *testing.T) {
	t.Parallel()
	l := Library{Types: setTypes()}
	load := func(i int) *Definition {
		d, err := l.Add(bundleOf(t, fmt.Sprint("p", i), keptSource))
		if err != nil {
			t.Fatal(err)
		}
		l.Swap(d)
		return d
	}
	run := load(0)
	for i := range 20 {
		load(i + 1)
	}
	if n := held(&l); n != 2 {
		t.Errorf("want the current definition and that of the run in memory, have %d", n)
	}
	if l.cached(run.Bundle.Hash) != run {
		t.Error("the definition that a run holds is not found")
	}
	hash := run.Bundle.Hash
	runtime.KeepAlive(run)
	run = nil
	if held(&l) != 2 || l.cached(hash) == nil {
		t.Error("a definition that was used just now is gone")
	}
	l.Trim(time.Now().Add(keptUnused))
	if n := held(&l); n != 1 || l.cached(hash) != nil {
		t.Errorf("want only the current definition a minute later, have %d", n)
	}
}

// Small definitions stay: runs that wait may come back to them.
func TestSmallDefinitionsStay(t *testing.T) {
	t.Parallel()
	l := Library{Types: setTypes()}
	for i := range 2 * maxDefinitions {
		d, err := l.Add(bundleOf(t, fmt.Sprint("p", i), 1))
		if err != nil {
			t.Fatal(err)
		}
		l.Swap(d)
	}
	l.Trim(time.Now().Add(time.Hour))
	if n := held(&l); n != 1+maxDefinitions {
		t.Errorf("want the current definition and the last %d, have %d", maxDefinitions, n)
	}
}
