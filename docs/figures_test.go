package docs_test

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"procaas/cmd/procaas-bench/figures"
)

var update = flag.Bool("update", false, "write the tables of figures on the pages")

// top is the top folder of the repository.
const top = ".."

// TestFiguresComeFromTheirFiles compares the tables of all pages with the files that make figures has written.
func TestFiguresComeFromTheirFiles(t *testing.T) {
	t.Parallel()
	if *update {
		if err := figures.WritePages(top); err != nil {
			t.Fatal(err)
		}
	}
	shown := map[string]bool{}
	for _, page := range figurePages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		filled, names, err := figures.Fill(top, string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
		if filled != string(text) {
			t.Errorf("%s: a table of figures differs from its file; write it with: go test ./docs -run Figures -update", page)
		}
		for _, name := range names {
			shown[name] = true
		}
	}
	for _, table := range figures.Tables {
		if !shown[table.Name] {
			t.Errorf("no page has the table %s of figures", table.Name)
		}
		set, err := figures.Read(top, table.Group)
		if err == nil && (set.Commit == "" || set.Date == "" || set.Machine == "") {
			t.Errorf("figures of %s: want a commit, a date and a machine, have %q, %q and %q", table.Group, set.Commit, set.Date, set.Machine)
		}
	}
}

// measuredCell finds a figure of the kinds that make figures measures, in a cell of a table or in prose.
var measuredCell = regexp.MustCompile(`[\d.]+ (µs|MB|KB of log|% of a core|flows/s|tasks/s|runs/s)|[\d.,]{3,} (a second|flows per second|tasks a second)`)

// pagesOfFigures name no other figures than those of make figures.
var pagesOfFigures = []string{"operating/figures.md", "operating/scale.md", "compare.md", "systems/inbox.md", "../README.md"}

// strayFigures returns the lines of a page that have a figure outside of its marked tables.
func strayFigures(text string) (stray []string) {
	text = regexp.MustCompile(`(?s)<!-- figures: .*?<!-- end of figures -->`).ReplaceAllString(text, "")
	for line := range strings.Lines(text) {
		if measuredCell.MatchString(line) && !slices.ContainsFunc(settings, func(s string) bool { return strings.Contains(line, s) }) {
			stray = append(stray, strings.TrimSpace(line))
		}
	}
	return stray
}

// settings are what a measurement does, which is no result.
var settings = []string{"measures 50 runs/s with a call"}

// TestPagesNameNoOtherFigures: a figure without a commit and a date becomes old without anybody seeing it.
func TestPagesNameNoOtherFigures(t *testing.T) {
	t.Parallel()
	for _, page := range pagesOfFigures {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strayFigures(string(text)) {
			t.Errorf("%s has a figure of its own: %s; measure it with make figures, and show it in a table of figures", page, line)
		}
	}
	for _, stray := range []string{"| a flow | 330 µs |\n", "It accepts 33,600 a second.\n", "<!-- figures: a -->\n1 µs\n<!-- end of figures -->\nIdle is 0.5 % of a core.\n"} {
		if len(strayFigures(stray)) != 1 {
			t.Errorf("want a figure found in %q", stray)
		}
	}
}

func figurePages(t *testing.T) []string {
	t.Helper()
	pages, err := figures.Pages(top)
	if err != nil || len(pages) < 50 {
		t.Fatalf("have %d pages: %v", len(pages), err)
	}
	return pages
}
