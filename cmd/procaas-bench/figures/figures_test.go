package figures

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiguresAreRounded(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Figure{
		"330 µs": {333.3, "µs"}, "2.8 KB": {2750, "B"}, "520 B": {519, "B"}, "0.91": {0.9123, ""}, "1.0": {1.04, ""},
		"130,000": {128_200, ""}, "1,200 a second": {1234, "a second"}, "0.0045 s": {0.00451, "s"}, "0": {0, ""}, "10": {9.96, ""},
	} {
		if have := f.String(); have != want {
			t.Errorf("%v: want %s, have %s", f, want, have)
		}
	}
}

// write makes a repository with one page and the figures of one group.
func write(t *testing.T, page string, s Set) (top string) {
	t.Helper()
	top = t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs/page.md", "README.md"} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Save(top, "others-queue", s); err != nil {
		t.Fatal(err)
	}
	return top
}

var measured = Set{Commit: "12345678", Date: "2026-01-02", Machine: "one core of a machine", Others: 0.07, Command: "make figures ONLY=x", Figures: map[string]Figure{
	"Go package: tasks of graphile-worker": {Value: 2.51}, "workers over HTTP: tasks of graphile-worker": {Value: 1.96},
}}

func TestPagesGetTheirTables(t *testing.T) {
	t.Parallel()
	const page = "# A page\n\n<!-- figures: others-queue -->\n\nold\n<!-- end of figures -->\n\nText.\n"
	top := write(t, page, measured)
	if err := WritePages(top); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs/page.md", "README.md"} {
		have, err := os.ReadFile(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		const want = `# A page

<!-- figures: others-queue -->

| Tasks a second, of graphile-worker | Ratio |
| --- | --- |
| procaas, Go package | 2.5 |
| procaas, workers over HTTP | 2.0 |

Measured at commit 12345678 on 2026-01-02, on one core of a machine, by ` + "`make figures ONLY=x`" + `.
Other programs took 7 % of the machine.

<!-- end of figures -->

Text.
`
		if string(have) != want {
			t.Errorf("%s: want\n%s\nhave\n%s", name, want, have)
		}
	}
}

func TestFiguresThatLackAreRefused(t *testing.T) {
	t.Parallel()
	top := write(t, "", measured)
	less := measured
	less.Figures = map[string]Figure{"Go package: tasks of graphile-worker": {Value: 2.51}}
	if err := Save(top, "others-queue", less); err == nil || !strings.Contains(err.Error(), `"workers over HTTP: tasks of graphile-worker"`) {
		t.Errorf("want the missing figure named, have %v", err)
	}
	if have, err := Read(top, "others-queue"); err != nil || len(have.Figures) != 2 {
		t.Errorf("want the old figures kept, have %v, %v", have, err)
	}
}

func TestPagesWithWrongMarksAreRefused(t *testing.T) {
	t.Parallel()
	top := write(t, "", measured)
	for page, want := range map[string]string{
		"<!-- figures: nothing -->\n\n<!-- end of figures -->\n": "no table nothing",
		"<!-- figures: others-queue -->\n\nand no end\n":         "end of figures",
		"<!-- figures: flows -->\n\n<!-- end of figures -->\n":   "make figures ONLY=flows",
	} {
		if _, _, err := Fill(top, page); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want an error with %q, have %v", page, want, err)
		}
	}
}
