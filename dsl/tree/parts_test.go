package tree_test

import (
	"testing"

	"procaas/cmd/procaas/addons"
	"procaas/dsl/library"
)

// TestPartsHaveNamesOfTheirOwn: what people ask for must be one thing, also beside the
// functions of expressions.
func TestPartsHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	at := map[string]string{}
	for _, f := range library.Functions() {
		at[f.Name] = "functions"
	}
	for _, p := range addons.Language().Parts() {
		if before, ok := at[p.Name]; ok {
			t.Errorf("%s is at %s and at %s", p.Name, before, p.At)
		}
		at[p.Name] = p.At
		if p.Spec.Doc == "" || len(p.Spec.Fields) == 0 {
			t.Errorf("%s has no documentation, or no fields", p.Name)
		}
	}
	for name, want := range map[string]string{
		"pipeline": "pipelines", "stage": "pipelines.stages", "handler": "pipelines.stages.handlers", "flow": "flows",
		"retry": "pipelines.stages.handlers.retry", "shard-map": "shard-maps",
	} {
		if at[name] != want {
			t.Errorf("%s: want it at %s, have %q", name, want, at[name])
		}
	}
}
