package render_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"procaas/dsl/diag"
	"procaas/dsl/render"
)

// TestRender shows how findings look. The input is the source; \t and \e stand
// for a tab and an escape character; at=FROM-TO is the span, with lines and
// columns.
func TestRender(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "../../testdata/dsl/render.txt", func(t *testing.T, d *datadriven.TestData) string {
		source := strings.NewReplacer(`\t`, "\t", `\e`, "\x1b", `\r`, "\r").Replace(d.Input)
		finding := diag.Diagnostic{Severity: diag.Error, Code: "PC0001", Message: "something is wrong"}
		var severity string
		d.MaybeScanArgs(t, "message", &finding.Message)
		d.MaybeScanArgs(t, "hint", &finding.Hint)
		d.MaybeScanArgs(t, "severity", &severity)
		if severity != "" {
			finding.Severity = diag.Severity(severity)
		}
		finding.Span = scanSpan(t, d, "at")
		if d.HasArg("also") {
			finding.Related = []diag.Related{{Span: scanSpan(t, d, "also"), Message: "the other place"}}
		}
		for _, text := range []*string{&finding.Message, &finding.Hint} {
			*text = strings.NewReplacer("_", " ", `\n`, "\n", `\e`, "\x1b").Replace(*text)
		}
		var b bytes.Buffer
		files := []diag.File{{Name: "a,b:c.yaml", Data: []byte(source)}}
		if err := render.Write(&b, render.Format(d.Cmd), files, []diag.Diagnostic{finding}, d.HasArg("color")); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(b.String(), "\x1b", `\e`)
	})
}

func scanSpan(t *testing.T, d *datadriven.TestData, arg string) diag.Span {
	at := diag.Span{File: "a,b:c.yaml"}
	var text string
	d.MaybeScanArgs(t, arg, &text)
	if text != "" {
		if _, err := fmt.Sscanf(text, "%d:%d-%d:%d", &at.Start.Line, &at.Start.Column, &at.End.Line, &at.End.Column); err != nil {
			d.Fatalf(t, "%s: %v", arg, err)
		}
	}
	return at
}

func TestSummary(t *testing.T) {
	t.Parallel()
	finding := func(s diag.Severity) diag.Diagnostic {
		return diag.Diagnostic{Severity: s, Code: "PC0001", Message: "m"}
	}
	for _, c := range []struct {
		files    int
		findings []diag.Diagnostic
		want     string
	}{
		{1, nil, "no problems in 1 file"},
		{
			2,
			[]diag.Diagnostic{finding(diag.Error), finding(diag.Error), finding(diag.Error), finding(diag.Warning)},
			"3 errors, 1 warning in 2 files",
		},
		{1, []diag.Diagnostic{finding(diag.Advice)}, "1 advice in 1 file"},
	} {
		var b bytes.Buffer
		if err := render.Write(&b, render.Text, make([]diag.File, c.files), c.findings, false); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if have := lines[len(lines)-1]; have != c.want {
			t.Errorf("have %q, want %q", have, c.want)
		}
	}
}

func TestUnknownFormatIsAnError(t *testing.T) {
	t.Parallel()
	if err := render.Write(&bytes.Buffer{}, "xml", nil, nil, false); err == nil {
		t.Error("xml is written, want an error")
	}
}

// TestRenderTakesAnySpan renders spans that do not fit their source.
func TestRenderTakesAnySpan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pos := rapid.Custom(func(rt *rapid.T) diag.Pos {
			return diag.Pos{Line: rapid.IntRange(0, 12).Draw(rt, "line"), Column: rapid.IntRange(0, 400).Draw(rt, "column")}
		})
		at := diag.Span{File: "f", Start: pos.Draw(rt, "start"), End: pos.Draw(rt, "end")}
		source := rapid.StringOf(rapid.SampledFrom([]rune("ab \t\n\r語\u0301\x1b"))).Draw(rt, "source")
		ds := []diag.Diagnostic{{Span: at, Severity: diag.Error, Code: "PC0001", Message: "m"}}
		files := []diag.File{{Name: "f", Data: []byte(source)}}
		for _, format := range []render.Format{render.Text, render.JSON, render.GitHub, render.SARIF, render.JUnit} {
			var b bytes.Buffer
			if err := render.Write(&b, format, files, ds, false); err != nil {
				rt.Fatal(err)
			}
			if bytes.ContainsRune(b.Bytes(), '\x1b') {
				rt.Fatalf("%s: an escape character gets through: %q", format, b.String())
			}
		}
	})
}
