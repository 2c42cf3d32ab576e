package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// Anybody who may see the console may type anything into its playground. The node answers, and lives.
func TestNodeLivesWhateverIsTypedInItsPlayground(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	node, _ := startProcaas(t.Context(), t, address, "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "p.db"), "--pipelines",
		taxiDir, "--listen", address)
	try := func(yaml string) string {
		t.Helper()
		reply, err := http.PostForm("http://"+address+"/console/playground", url.Values{"yaml": {yaml}, "do": {"check"}})
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		page, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("have %d, %v and\n%s", reply.StatusCode, err, page)
		}
		return string(page)
	}
	if page := try("pipelines: [{id: a, stages: [{id: s, handlers: [{id: h, set: {}}]}]}]"); !strings.Contains(page, "a/s/h") {
		t.Errorf("want the pipeline drawn, have\n%s", page)
	}
	repeated := strings.TrimSuffix(strings.Repeat("params.x + ", 370), " + ")
	bomb := "templates:\n  - id: t\n    parameters: {x: {type: string}}\n    handler:\n      set:\n"
	for i := range 4 {
		bomb += fmt.Sprintf("        a%d: !$ %q\n", i, repeated)
	}
	bomb += "pipelines: [{id: p, stages: [{id: s, handlers: [{id: h, use: {template: t, with: {x: " + strings.Repeat("y", 40_000) +
		"}}}]}]}]\n"
	if page := try(bomb); !strings.Contains(page, "longer than 4 KiB once the parameters are inserted") {
		t.Errorf("want the template refused, have\n%.2000s", page)
	}
	chain := "pipelines:\n- id: p\n  shared-state: {a: 0}\n  stages:\n  - id: s\n    handlers:\n"
	for i := range 900 {
		chain += fmt.Sprintf("    - {id: h%d, set: {a: !$ shared-state.a}}\n", i)
	}
	if page := try(chain); !strings.Contains(page, "p/s/h899") {
		t.Errorf("want 900 handlers drawn, have\n%.2000s", page)
	}
	if reply, err := http.Get("http://" + address + "/readyz"); err != nil || reply.StatusCode != http.StatusOK {
		t.Errorf("want the node ready, have %v, %v", reply, err)
	}
	node.kill()
}
