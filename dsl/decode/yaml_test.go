package decode

import (
	"embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/source"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

//go:embed yaml_test.go
var testFiles embed.FS

// testRequest calls a service.
type testRequest struct {
	// URL is where to call.
	URL string `yaml:"url"`

	// Service is the service to call.
	Service string `yaml:"service"`

	// Path is appended to the URL of the service.
	Path string `yaml:"path"`

	// Method is the HTTP method.
	Method string `yaml:"method" default:"POST" enum:"GET,POST,PUT,PATCH,DELETE"`

	// Query is appended to the URL.
	Query map[string]any `yaml:"query"`

	// Headers are sent along.
	Headers map[string]string `yaml:"headers"`

	// Body is sent as JSON.
	Body any `yaml:"body"`

	// Expect lists the statuses that count as success.
	Expect []int `yaml:"expect" min:"100" max:"599"`

	// MaxReply bounds the reply.
	MaxReply datum.Bytes `yaml:"max-reply" default:"1MiB"`
}

// testWait does nothing for a time.
type testWait struct {
	// For is how long to wait.
	For time.Duration `yaml:"for" min:"1ms"`

	// Until is when to go on.
	Until time.Time `yaml:"until"`
}

// testSet computes values.
type testSet struct {
	// Values are the names to set.
	Values map[string]any `yaml:",inline"`
}

// testPut puts a task.
type testPut struct {
	// Queue is the queue to put it into.
	Queue string `yaml:"queue" required:"true" pattern:"id"`

	// Urgent says that it goes first.
	Urgent bool `yaml:"urgent"`

	// Tags mark the task.
	Tags spec.Names `yaml:"tags"`

	// Limit bounds the tasks.
	Limit datum.Rate `yaml:"limit" expr:"no"`
}

var testTypes = sync.OnceValue(func() []tree.Type {
	return []tree.Type{
		{Name: "request", Spec: spec.Of(reflect.TypeFor[testRequest](), spec.Read(testFiles))},
		{Name: "wait", Spec: spec.Of(reflect.TypeFor[testWait](), spec.Read(testFiles))},
		{Name: "set", Spec: spec.Of(reflect.TypeFor[testSet](), spec.Read(testFiles)), SetsState: true},
		{Name: "queue.put", Spec: spec.Of(reflect.TypeFor[testPut](), spec.Read(testFiles))},
	}
})

// readAlone reads and decodes a file as if there were no others.
func readAlone(f diag.File, types []tree.Type) *Reading {
	read := readFile(f, nil)
	read.decode(types, mouldsOf([]*Reading{read}), nil, false)
	return read
}

// parseText parses one file and returns the document and the findings.
func parseText(text string) (*tree.Document, []diag.Diagnostic) {
	read := readAlone(diag.File{Name: "a.yaml", Data: []byte(text)}, testTypes())
	return read.doc, (&diag.Reporter{Found: read.Found}).Diagnostics()
}

func showSpan(s diag.Span) string {
	return fmt.Sprintf("%d:%d-%d:%d", s.Start.Line, s.Start.Column, s.End.Line, s.End.Column)
}

// unescape lets goldens hold what editors would spoil.
var unescape = strings.NewReplacer(`\t`, "\t", `\r`, "\r", `\0`, "\x00", `\xff`, "\xff", `\u2028`, "\u2028")

func TestYAMLGoldens(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../../testdata/dsl", func(t *testing.T, path string) {
		name := path[strings.LastIndex(path, "/")+1:]
		switch {
		case strings.HasPrefix(name, "yaml_"):
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return yamlCommand(d) })
		case strings.HasPrefix(name, "position_"):
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return positionCommand(d) })
		}
	})
}

// yamlCommand runs one case: check prints the findings, and what was understood
// when there are none; escaped does the same after decoding escapes.
func yamlCommand(d *datadriven.TestData) string {
	input := d.Input
	if d.Cmd == "escaped" {
		input = unescape.Replace(input)
	}
	doc, found := parseText(input)
	if len(found) == 0 {
		return showDocument(doc)
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s %s %s %s", showSpan(f.Span), f.Severity, f.Code, f.Message)
		if f.Hint != "" {
			fmt.Fprintf(&b, " | %s", f.Hint)
		}
		for _, r := range f.Related {
			fmt.Fprintf(&b, " (%s %s)", showSpan(r.Span), r.Message)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// showDocument writes all that a document holds, one field per line.
func showDocument(doc *tree.Document) string {
	var b strings.Builder
	show(&b, "", reflect.ValueOf(doc).Elem())
	if b.Len() == 0 {
		return "empty\n"
	}
	return b.String()
}

func show(b *strings.Builder, path string, v reflect.Value) {
	switch x := v.Interface().(type) {
	case *expr.Value:
		if x != nil {
			fmt.Fprintf(b, "%s: %s\n", path, showValue(x))
		}
		return
	case tree.Times:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			fmt.Fprintf(b, "%s.%s: %s\n", path, name, showValue(x[name]))
		}
		return
	case diag.Span:
		return
	}
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		show(b, path, v.Elem())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Pointer:
		for i := range v.Len() {
			show(b, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[datum.Rate]():
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				show(b, strings.TrimPrefix(path+"."+f.Name, "."), v.Field(i))
			}
		}
	case !v.IsZero():
		fmt.Fprintf(b, "%s: %v\n", path, v.Interface())
	}
}

func showValue(v *expr.Value) string {
	switch v.Kind {
	case expr.ValueExpr:
		return fmt.Sprintf("!$ %q", v.Computed.Source)
	case expr.ValueSecret:
		return "!secret " + v.Secret
	case expr.ValueList:
		var items []string
		for _, item := range v.Elems {
			items = append(items, showValue(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case expr.ValueMap:
		var items []string
		for i, item := range v.Elems {
			items = append(items, v.Names[i].Name+": "+showValue(item))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return fmt.Sprintf("%#v", v.Scalar)
}

// positionCommand shows the lines of a file with, below each, the runes of the
// expressions where they are said to be.
func positionCommand(d *datadriven.TestData) string {
	doc, found := parseText(d.Input)
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s %s %s\n", showSpan(f.Span), f.Code, f.Message)
	}
	for _, p := range doc.Pipelines {
		for _, s := range p.Stages {
			for _, h := range s.Handlers {
				h.Enabled.WalkExprs(func(e *expr.Expr) { b.WriteString(showPlaces(d.Input, e)) })
				h.Body.WalkExprs(func(e *expr.Expr) { b.WriteString(showPlaces(d.Input, e)) })
			}
		}
	}
	for _, h := range doc.Handlers {
		h.Body.WalkExprs(func(e *expr.Expr) { b.WriteString(showPlaces(d.Input, e)) })
	}
	return b.String()
}

func showPlaces(text string, e *expr.Expr) string {
	lines := strings.Split(text, "\n")
	marks := make(map[int][]rune)
	for i, r := range []rune(e.Source) {
		p := e.At.At(i)
		row := marks[p.Line]
		for len(row) < p.Column {
			row = append(row, ' ')
		}
		if source.IsBlank(r) {
			r = '_'
		}
		row[p.Column-1] = r
		marks[p.Line] = row
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q\n", showSpan(e.Span), e.Source)
	for i := range lines {
		if row := marks[i+1]; row != nil {
			fmt.Fprintf(&b, "  file %s\n  expr %s\n", lines[i], strings.TrimRight(string(row), " "))
		}
	}
	return b.String()
}

func TestTheLanguageDocumentsItself(t *testing.T) {
	t.Parallel()
	handler := tree.NewLanguage().File().Field("pipelines").Elem.Spec.Field("stages").Elem.Spec.Field("handlers").Elem.Spec
	if have := handler.Field("max-in-flight"); !have.NoExpr || !strings.HasPrefix(have.Doc, "MaxInFlight is the highest number") {
		t.Errorf("have %+v", have)
	}
	if have := handler.Field("timeout"); have.NoExpr || !have.Live {
		t.Errorf("have %+v", have)
	}
	if have := handler.Field("enabled"); have.NoExpr || have.ExprKind != datum.BoolKind {
		t.Errorf("have %+v", have)
	}
}

func TestInlineFieldsGatherAllNames(t *testing.T) {
	t.Parallel()
	s := testTypes()[2].Spec
	var have testSet
	if err := s.Decode(map[string]any{"a": 1, "b": nil}, &have); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"a": 1, "b": nil}, have.Values); diff != "" || !s.Inline {
		t.Errorf("inline %v, -want +have:\n%s", s.Inline, diff)
	}
}
