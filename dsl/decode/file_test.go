package decode

import (
	"embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

//go:embed file_test.go
var otherFiles embed.FS

// An otherFile is a kind of file of its own.
type otherFile struct {
	// Answers are by name, one for each or several.
	Answers map[string][]*otherAnswer `yaml:"answers" one:"true"`

	// Ends are by name; a word says all.
	Ends map[string]*otherEnd `yaml:"ends" words:"good,bad"`

	// Steps are one or several.
	Steps []*otherAnswer `yaml:"steps" one:"true"`
}

// An otherAnswer is what comes.
type otherAnswer struct {
	Span diag.Span `yaml:"-"`
	Key  expr.Key  `yaml:"-"`

	// Latency is how long it takes.
	Latency time.Duration `yaml:"latency" default:"1s"`

	// Reply is what it is.
	Reply *expr.Value `yaml:"reply"`
}

// An otherEnd is how it ends.
type otherEnd struct {
	Key expr.Key `yaml:"-"`

	// Word is one word.
	Word string `yaml:"-"`

	// Why is the reason.
	Why string `yaml:"why" required:"true"`

	// Then is what may follow.
	Then map[string]*otherEnd `yaml:"then"`
}

func decodeOther(t *testing.T, text string) (otherFile, string) {
	t.Helper()
	var out otherFile
	spec := spec.OfFile(reflect.TypeFor[otherFile](), spec.Read(otherFiles))
	found := File(diag.File{Name: "x.yaml", Data: []byte(text)}, spec, &out, &expr.Scope{Roots: []string{"request"}})
	var lines []string
	for _, d := range found {
		lines = append(lines, fmt.Sprintf("%s: %s", d.Span, d.Message))
	}
	return out, strings.Join(lines, "\n")
}

func TestOneStandsInPlaceOfAListAndMapsHoldStructs(t *testing.T) {
	t.Parallel()
	have, found := decodeOther(t, `
answers:
  one: {reply: {id: !$ request.id}}
  two:
    - {latency: 2s}
    - {reply: text}
ends:
  a: good
  b: {why: it rained, then: {c: {why: it stopped}}}
steps: {latency: 3s}
`)
	if found != "" {
		t.Fatal(found)
	}
	one, two := have.Answers["one"], have.Answers["two"]
	if len(one) != 1 || len(two) != 2 || two[0].Latency != 2*time.Second || two[1].Latency != time.Second {
		t.Fatalf("want one answer and two, have %+v and %+v", one, two)
	}
	if k := two[1].Key; k.Name != "two" || k.Span.String() != "x.yaml:4:3" {
		t.Errorf("want the key of the answers, have %+v", k)
	}
	if v, err := one[0].Reply.Eval(datum.Env{"request": map[string]any{"id": 7}}); err != nil ||
		!reflect.DeepEqual(v, map[string]any{"id": 7}) {
		t.Errorf("want the reply, have %v, %v", v, err)
	}
	if e := have.Ends["a"]; e.Word != "good" || e.Key.Name != "a" {
		t.Errorf("want the word good, have %+v", e)
	}
	if e := have.Ends["b"].Then["c"]; e == nil || e.Why != "it stopped" {
		t.Errorf("want what follows, have %+v", e)
	}
	if len(have.Steps) != 1 || have.Steps[0].Latency != 3*time.Second {
		t.Errorf("want one step, have %+v", have.Steps)
	}
}

func TestOneAndMapsOfStructsAreChecked(t *testing.T) {
	t.Parallel()
	_, found := decodeOther(t, `
answers:
  one: {reply: x, laency: 1s}
  two: [{latency: soon}, 7]
  three: word
  four: {latency: !$ request.x}
  five: {reply: !$ other}
ends:
  a: god
  b: {then: {}}
steps: 12
`)
	want := `x.yaml:3:19: unknown field "laency" of the other-answer
x.yaml:4:19: field "latency": want a duration such as 300ms or 5s, have "soon"
x.yaml:4:26: field "two": want a mapping, have 7
x.yaml:5:10: field "three": want a mapping, have "word"
x.yaml:6:22: field "latency" takes no expression: it is fixed before anything runs
x.yaml:7:20: there is no name other
x.yaml:9:6: field "a": want good, bad or a mapping with why, then, have "god"
x.yaml:10:6: the other-end has no "why"
x.yaml:11:8: field "steps": want a mapping, have 12`
	if found != want {
		t.Errorf("want\n%s\nhave\n%s", want, found)
	}
}

func TestFileSchemaOfOneAndMaps(t *testing.T) {
	t.Parallel()
	data, err := tree.FileSchema("other files", spec.OfFile(reflect.TypeFor[otherFile](), spec.Read(otherFiles)))
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties map[string]struct {
			AnyOf                []any
			AdditionalProperties struct{ AnyOf []any }
		}
		Defs map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Properties["answers"].AdditionalProperties.AnyOf); n != 2 {
		t.Errorf("want one answer or a list, have %d ways", n)
	}
	if n := len(s.Properties["steps"].AnyOf); n != 3 {
		t.Errorf("want one step, a list or nothing, have %d ways", n)
	}
	if s.Defs["other-end"] == nil || s.Defs["other-answer"] == nil {
		t.Errorf("want the definitions, have %v", s.Defs)
	}
}
