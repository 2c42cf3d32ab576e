package handlers_test

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/spec"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers"
)

var update = flag.Bool("update", false, "rewrite the reference and the goldens")

const preamble = `<!-- Generated from the comments and tags of the structs here: go test ./handlers -update -->

# Handler types

A handler has a key that names its type, such as ` + "`request:`" + `. Below that key are the fields on
this page. Each value may be an expression, written ` + "`!$ …`" + `. The fields that all handlers share,
such as ` + "`enabled`, `critical`, `result`, `retry` and `timeout`" + `, stand beside that key.

`

func TestReferenceIsFresh(t *testing.T) {
	want := preamble + handlers.Reference(addons.Types()...)
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("handlers/README.md is stale: run go test ./handlers -update")
	}
}

func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, h := range addons.HandlerTypes() {
		if seen[h.Name] {
			t.Errorf("two types are called %s", h.Name)
		}
		seen[h.Name] = true
	}
}

// forgetful is a type of which the author has not said all.
type forgetful struct {
	// Told is documented.
	Told string `yaml:"told"`

	Untold string `yaml:"untold"`
}

func (*forgetful) Handle(context.Context, *engine.Call) (model.Result, error) {
	return model.Result{}, nil
}

//go:embed handlers_test.go
var forgetfulFiles embed.FS

func TestUndocumentedFieldPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "Untold") {
			t.Errorf("have %q, want a panic about the field Untold", p)
		}
	}()
	engine.Type[forgetful]("forgetful", spec.Read(forgetfulFiles))
}
