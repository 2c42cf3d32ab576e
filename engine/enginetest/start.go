package enginetest

import (
	"context"
	"testing"

	"procaas/dsl"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
)

// A Failer is a test, or a check of a property.
type Failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Load loads a definition that has no mistakes from the text of one file.
func Load(t Failer, text string, types ...engine.HandlerType) *tree.Bundle {
	t.Helper()
	return LoadIn(t, nil, text, types...)
}

// LoadIn is [Load] with a language that has sections of add-ons.
func LoadIn(t Failer, language *tree.Language, text string, types ...engine.HandlerType) *tree.Bundle {
	t.Helper()
	b, found := dsl.Load([]diag.File{{Name: "flows.yaml", Data: []byte(text)}}, dsl.Options{Language: language, Types: engine.Types(types)})
	if b == nil {
		t.Fatalf("the definition does not load: %+v", found)
	}
	return b
}

// Start runs an engine until the end of the test.
func Start(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.New(o)
	if err != nil {
		t.Fatal(err)
	}
	Run(t, e)
	return e
}

// Run runs an engine until the end of the test.
func Run(t testing.TB, e *engine.Engine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the engine has ended: %v", err)
		}
	})
}
