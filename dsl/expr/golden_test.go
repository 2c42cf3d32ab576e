package expr

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
)

// goldenScope is the scope of the golden expressions.
func goldenScope() *Scope {
	return &Scope{
		Roots: []string{"event", "shared-state", "sources", "configs", "flow", "run", "item"},
		State: map[string]any{
			"order": nil, "driver-id": nil, "total": 0, "tip": 0, "flag": nil, "text": "", "xs": nil, "nothing": nil, "find-in-db": nil,
		},
		Sources: []string{"get-order", "find-driver"},
		Late:    func() map[string]string { return map[string]string{"notify": "runs in a later stage"} },
		Configs: []string{"NOTIFY_SWITCH", "CITIES", "SOME_IMPORTANT_SWITCH"},
	}
}

// goldenEnv is what the golden expressions are evaluated with.
func goldenEnv() datum.Env {
	return datum.Env{
		"event": map[string]any{
			"id": "e1", "type": "new-order-created", "source": "app", "time": "2026-11-20T10:00:00Z", "key": "o1",
			"payload": map[string]any{"is-authorized": true, "order-id": "o1", "city": "Riga", "big": 9007199254740993},
		},
		"shared-state": map[string]any{
			"order": map[string]any{
				"id": "o1", "tariff": "econom", "info": map[string]any{"tariff": "econom", "in": 1}, "price": 100.0,
				"items": []any{map[string]any{"name": "a", "price": 10}, map[string]any{"name": "b", "price": 25}},
			},
			"driver-id": 7, "total": 12, "tip": 3, "flag": true, "text": "Привет", "nothing": nil,
			"xs": []any{3, 1, 2}, "find-in-db": "here",
		},
		"sources": map[string]any{
			"get-order": map[string]any{
				"response": map[string]any{"order-document": map[string]any{"id": "o1"}}, "status": 200,
				"outcome": "succeeded",
			},
			"find-driver": map[string]any{"response": nil, "status": nil, "outcome": "failed"},
		},
		"configs": map[string]any{
			"NOTIFY_SWITCH": map[string]any{"enabled": true}, "SOME_IMPORTANT_SWITCH": map[string]any{"enabled": true},
			"CITIES": map[string]any{"enabled": []any{"Riga", "Oslo"}},
		},
		"flow": map[string]any{"id": "taxi-order", "key": "o1", "state": "created"},
		"run":  map[string]any{"id": "r1", "pipeline": "new-order-created", "started": "2026-11-20T10:00:01Z"},
		"item": map[string]any{"n": 1},
	}
}

var kindNames = map[string]datum.Kind{
	"bool": datum.BoolKind, "int": datum.IntKind, "float": datum.FloatKind, "string": datum.StringKind, "duration": datum.DurationKind,
	"time": datum.TimeKind, "bytes": datum.BytesKind, "rate": datum.RateKind, "jitter": datum.JitterKind, "list": datum.ListKind,
	"map": datum.MapKind, "object": datum.ObjectKind,
}

// caret draws the place of a finding below its line.
func caret(source string, at diag.Span) string {
	lines := strings.Split(source, "\n")
	if at.Start.Line > len(lines) {
		return fmt.Sprintf("(outside: %v)\n", at)
	}
	end := at.End.Column
	if at.End.Line != at.Start.Line {
		end = len([]rune(lines[at.Start.Line-1])) + 1
	}
	return "  " + lines[at.Start.Line-1] + "\n  " + strings.Repeat(" ", at.Start.Column-1) +
		strings.Repeat("^", max(1, end-at.Start.Column)) + "\n"
}

func golden(e *Expr, want datum.Kind, sc *Scope) string {
	var out strings.Builder
	var r diag.Reporter
	e.Compile(sc, want, &r)
	for _, d := range r.Diagnostics() {
		fmt.Fprintf(&out, "%s %s: %s\n%s", d.Severity, d.Code, d.Message, caret(e.Source, d.Span))
		if d.Hint != "" {
			fmt.Fprintf(&out, "  hint: %s\n", d.Hint)
		}
	}
	if diag.HasErrors(r.Diagnostics()) {
		return out.String()
	}
	v, err := e.Eval(goldenEnv())
	if traced, failure := e.Trace(context.Background(), goldenEnv()).Result(); !reflect.DeepEqual(v, traced) ||
		!reflect.DeepEqual(err, failure) {
		fmt.Fprintf(&out, "the trace differs: %v, %v\n", traced, failure)
	}
	if failure, ok := errors.AsType[*EvalError](err); ok {
		fmt.Fprintf(&out, "fails: %s\n%s", failure.Message, caret(e.Source, failure.Span))
		return out.String()
	}
	text, err := datum.FormatJSON(v)
	if err != nil {
		text = []byte(err.Error())
	}
	if _, ok := v.(float64); ok {
		text = append(text, " (float)"...)
	}
	fmt.Fprintf(&out, "%s\n", text)
	return out.String()
}

func goldenTrace(e *Expr, sc *Scope) string {
	var r diag.Reporter
	e.Compile(sc, datum.AnyKind, &r)
	if diag.HasErrors(r.Diagnostics()) {
		return fmt.Sprintln(r.Diagnostics())
	}
	var out strings.Builder
	if err := WriteTrace(&out, e.Trace(context.Background(), goldenEnv()), false); err != nil {
		return err.Error()
	}
	return out.String()
}

// The commands of the golden files: "eval" evaluates each line of the input,
// or with "whole" all of it as one expression; "reads" lists what it reads;
// "trace" shows what its parts come to.
func TestExprGolden(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../../testdata/dsl", func(t *testing.T, path string) {
		if !strings.Contains(path, "/expr_") {
			return
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			sources := strings.Split(d.Input, "\n")
			if d.HasArg("whole") {
				sources = []string{d.Input}
			}
			sc := goldenScope()
			sc.Lenient = d.HasArg("lenient")
			var want datum.Kind
			if d.HasArg("want") {
				var name string
				d.ScanArgs(t, "want", &name)
				want = kindNames[name]
			}
			var out strings.Builder
			for _, source := range sources {
				e := newExpr(source)
				if len(sources) > 1 {
					fmt.Fprintf(&out, "# %s\n", source)
				}
				switch d.Cmd {
				case "eval":
					out.WriteString(golden(e, want, sc))
				case "trace":
					out.WriteString(goldenTrace(e, sc))
				case "reads":
					out.WriteString(goldenReads(e, sc))
				default:
					t.Fatalf("unknown command %s", d.Cmd)
				}
			}
			return out.String()
		})
	})
}

func goldenReads(e *Expr, sc *Scope) string {
	var out strings.Builder
	var r diag.Reporter
	e.Compile(sc, datum.AnyKind, &r)
	for _, d := range r.Diagnostics() {
		fmt.Fprintf(&out, "%s: %s\n", d.Severity, d.Message)
	}
	if diag.HasErrors(r.Diagnostics()) {
		return out.String()
	}
	for _, read := range e.Reads() {
		guard := ""
		if read.Guarded {
			guard = " guarded"
		}
		fmt.Fprintf(&out, "%d:%d-%d %s%s\n", read.Span.Start.Line, read.Span.Start.Column, read.Span.End.Column,
			strings.Join(read.Path, "/"), guard)
	}
	return out.String()
}
