package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"procaas/cmd/procaas-bench/figures"
)

// TestATreeWithChangesIsRefused: nobody could repeat figures of code that is in no commit.
func TestATreeWithChangesIsRefused(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-C", top, "-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	for _, name := range []string{"main.go", "docs/operating/scale.md", figures.Folder + "/flows.json"} {
		write(name, "one\n")
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	commit, err := cleanCommit(t.Context(), top)
	if err != nil || len(commit) != 8 {
		t.Fatalf("want a commit, have %q, %v", commit, err)
	}
	write("docs/operating/scale.md", "two\n") // what an earlier group has written
	write(figures.Folder+"/flows.json", "two\n")
	write(figures.Folder+"/queue.json", "new\n")
	if again, err := cleanCommit(t.Context(), top); err != nil || again != commit {
		t.Errorf("with other figures: want %q, have %q, %v", commit, again, err)
	}
	for _, name := range []string{"main.go", "more.go"} {
		write(name, "two\n")
		if _, err := cleanCommit(t.Context(), top); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error that names %s, have %v", name, err)
		}
	}
}

// TestEachTableHasAGroupOfParts: make figures must reach all tables of the pages.
func TestEachTableHasAGroupOfParts(t *testing.T) {
	t.Parallel()
	for _, g := range figureGroups {
		for part := range strings.SplitSeq(g.parts, ",") {
			if !slices.Contains(partNames(), part) {
				t.Errorf("the group %s has a part %s, which does not exist", g.name, part)
			}
		}
	}
	for _, table := range figures.Tables {
		if byHand := strings.HasPrefix(table.Group, "others-"); !byHand && !slices.Contains(groupNames(), table.Group) {
			t.Errorf("nothing measures the group %s of the table %s", table.Group, table.Name)
		}
	}
}

// TestFiguresOfBothBinariesAreKeptApart: the ratio is that of the same round.
func TestFiguresOfBothBinariesAreKeptApart(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := &bench{options: options{binary: "new", beside: "old", rounds: 2}, found: &findings{}, out: &out}
	var order []string
	err := b.eachRound(t.Context(), func(_ context.Context, b *bench) error {
		order = append(order, b.binary)
		b.note("a flow", "µs", map[string]float64{"new": 100, "old": 200}[b.binary])
		return nil
	})
	if err != nil || !slices.Equal(order, []string{"new", "old", "old", "new"}) {
		t.Errorf("want both in turns, have %v, %v", order, err)
	}
	b.report("")
	if have := strings.Fields(out.String()); !slices.Contains(have, "0.50") || !slices.Contains(have, "200") {
		t.Errorf("want the earlier figure and the ratio, have:\n%s", &out)
	}
}
