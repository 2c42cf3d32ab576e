package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"procaas/dsl/tree"
	"procaas/engine/api/cli"
	"procaas/engine/definitions"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
)

// A node that has replaced its definition keeps nothing of the earlier ones, also not of the one that it has started with. Each takes
// some thirty times as much memory as its files.
func TestNodeForgetsReplacedDefinitions(t *testing.T) { // not parallel: it collects garbage
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	write := func(version int) {
		// Large files: small ones stay for runs that come back to them.
		text := fmt.Sprintf("pipelines: [{id: p, stages: [{id: s, handlers: [{id: h, set: {}}]}]}]\n# %d %s\n", version, strings.Repeat("x", 600<<10))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	var out strings.Builder
	s := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
	f := Flags{
		Store: "sqlite:" + filepath.Join(dir, "s.db"), Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 4,
		Lease: time.Minute, Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{file},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, err := f.load(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(ctx, s, f, b)
	if err != nil {
		t.Fatal(err)
	}
	replaced := []weak.Pointer[tree.Bundle]{weak.Make(b)}
	b = nil
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	patience.Until(t, "a node that works", func() bool { return n.engine.Healthy(ctx) == nil })
	for version := 1; version <= 3; version++ {
		write(version)
		if _, err := n.reload(ctx, definitions.Change{}, store.Actor{Name: "test"}); err != nil {
			t.Fatal(err)
		}
		if version < 3 {
			replaced = append(replaced, weak.Make(n.engine.Bundle()))
		}
	}
	patience.Until(t, "replaced definitions to be forgotten", func() bool {
		runtime.GC()
		for _, b := range replaced {
			if b.Value() != nil {
				return false
			}
		}
		return true
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
