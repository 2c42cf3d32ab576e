package dsl_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/typing"
)

// promisedSchema is that of the payload of the expressions below.
const promisedSchema = `
schemas:
  item:
    type: object
    required: [price]
    properties: {price: {type: number}, name: {type: string}, tags: {type: array, items: {type: string}}}
  order:
    type: object
    required: [id, tariff, items, total, address]
    properties:
      id: {type: string}
      tariff: {enum: [econom, business]}
      total: {type: number}
      comment: {type: [string, 'null']}
      tip: {type: number}
      urgent: {type: boolean}
      items: {type: array, items: {$ref: item}}
      address: {type: object, required: [city], properties: {city: {type: string}, flat: {type: integer}}}
      labels: {type: object, additionalProperties: {type: string}}
      payment: {anyOf: [{type: object, required: [method], properties: {method: {type: string}, card: {$ref: item}}}, {type: 'null'}]}
      parts: {type: array, items: {type: [number, 'null']}}
events:
  - {type: p, payload: order}
pipelines:
  - {id: p, stages: [{id: s, handlers: [{id: h}]}]}
`

// promisedGrammar makes expressions of that payload: N a number, T a text, B a
// condition, I a list of items, V any value, each maybe null. The payload is o.
var promisedGrammar = map[rune][]string{
	'N': {
		"1", "o.total", "o.tip", "o.address.flat", "o.items[0].price", "first(o.items).price", "first(o.items)?.price", "o.payment.card.price",
		"o.parts[0]",
		"N + N", "N * N", "-N", "N ?? N", "N if B else N", "sum(I, #.price)", "sum(map(I, #.price))", "len(T)", "count(I)", "sum(o.parts)",
		"max(N, N)", "sum(filter(o.parts, # != null))",
		"let v = N; v + N", "reduce(I, #acc + #.price, N)", "o?.payment?.card?.price", "find(I, #.name == T)?.price ?? N", "len(o.labels ?? {})",
		"sortBy(I, #.name)[0].price", "sortBy(I, #.price)[0].price", "len(groupBy(I, #.name ?? T))", "len(groupBy(I, #.tags))", "mean(o.parts)",
		"min(map(I, #.price))", "count(I, #.name == T)",
	},
	'T': {
		"'a'", "o.id", "o.tariff", "o.comment", "o.address.city", "o.payment.method", "o.labels.vip", "o.labels['a']", "o.items[0].name",
		"first(I)?.name",
		"T + T", "upper(T)", "T ?? T", "T if B else T", "join(map(I, #.name), T)", "join(map(I, #.name ?? T), T)", "o.payment?.card?.name",
		"string(N)", "o?.labels?.vip", "let w = T; w + T",
		"join(o.items[0].tags ?? [], T)", "values(o.labels ?? {})[0] ?? T",
	},
	'B': {
		"true", "o.urgent", "o.urgent == true", "N > N", "T == T", "N == null", "T != null", "T startsWith T", "B and B", "B or B", "not B",
		"T in ['a', 'b']", "'tip' in o", "'comment' in o",
		"'vip' in o.labels", "o.payment != null", "o.payment?.card != null", "o.labels != null", "o.tip != null", "o.comment != null",
		"o.tip == null", "o.address.flat != null",
		"any(I, #.name == T)", "all(I, #.name != null and #.name startsWith T)", "type(o.comment) == 'string'", "o.payment == null or " +
			"o.payment.method == T",
		"o.payment?.card?.name == 'a' and o.payment.card.name startsWith T", "o.tip != null and o.tip > N", "len(o.items) > N", "V == V",
		"B if B else B",
	},
	'I': {
		"o.items", "filter(I, #.name != null)", "filter(I, #.price > N)", "I + I", "I if B else I", "o.items[0:1]", "reverse(I)",
		"o.payment?.card != null ? [o.payment.card] : I", "map(I, {price: #.price * 2})",
	},
	'V': {"null", "o.comment", "o.payment", "o.labels", "o.items[0]", "N", "T", "B", "I"},
}

func promisedExpression(t *rapid.T, of rune, depth int) string {
	forms := promisedGrammar[of]
	form := rapid.SampledFrom(forms).Draw(t, "form")
	for depth <= 0 && strings.ContainsAny(form, "NTBIV") {
		form = rapid.SampledFrom(forms).Draw(t, "form")
	}
	var b strings.Builder
	letters := []rune(form)
	for i, r := range letters {
		word := i > 0 && syntax.InName(letters[i-1]) || i+1 < len(letters) && syntax.InName(letters[i+1])
		if _, ok := promisedGrammar[r]; ok && !word {
			b.WriteString("(" + promisedExpression(t, r, depth-1) + ")")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// promisedPayload draws a payload that fits the schema.
func promisedPayload(t *rapid.T) map[string]any {
	maybe := func() bool { return rapid.Bool().Draw(t, "there") }
	text := func() any { return rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "text") }
	number := func() any {
		if maybe() {
			return rapid.IntRange(-2, 9).Draw(t, "whole")
		}
		return rapid.Float64Range(-2, 9).Draw(t, "fraction")
	}
	item := func() any {
		m := map[string]any{"price": number()}
		if maybe() {
			m["name"] = text()
		}
		if maybe() {
			m["tags"] = []any{text(), text()}
		}
		return m
	}
	o := map[string]any{
		"id": text(), "tariff": rapid.SampledFrom([]string{"econom", "business"}).Draw(t, "tariff"), "total": number(),
		"items": []any{}, "address": map[string]any{"city": text()},
	}
	for range rapid.IntRange(0, 2).Draw(t, "items") {
		o["items"] = append(o["items"].([]any), item())
	}
	if maybe() {
		o["comment"] = text()
	} else if maybe() {
		o["comment"] = nil
	}
	if maybe() {
		o["tip"] = number()
	}
	if maybe() {
		o["urgent"] = maybe()
	}
	if maybe() {
		o["address"].(map[string]any)["flat"] = rapid.IntRange(1, 9).Draw(t, "flat")
	}
	if maybe() {
		o["labels"] = map[string]any{"vip": text()}
	}
	if maybe() {
		payment := map[string]any{"method": text()}
		if maybe() {
			payment["card"] = item()
		}
		o["payment"] = payment
	} else if maybe() {
		o["payment"] = nil
	}
	if maybe() {
		o["parts"] = []any{number(), nil}
	}
	return o
}

// TestWhatIsCheckedDoesNotFailForNull draws expressions and payloads that fit the
// schema of one. What the check has let pass fails for no null and no wrong type.
func TestWhatIsCheckedDoesNotFailForNull(t *testing.T) {
	t.Parallel()
	bundle, found := dsl.Load([]diag.File{{Name: "p.yaml", Data: []byte(promisedSchema)}}, dsl.Options{})
	if bundle == nil {
		t.Fatal(found)
	}
	contract := bundle.Event("p").Contract()
	passed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		source := promisedExpression(t, rapid.SampledFrom([]rune("NTBIV")).Draw(t, "type"), rapid.IntRange(1, 3).Draw(t, "depth"))
		e := expr.Bare("expr", "let o = event.payload; "+source)
		var r diag.Reporter
		e.Compile(&expr.Scope{Roots: expr.AllRoots, Payload: contract.Outline()}, datum.AnyKind, &r)
		if diag.HasErrors(r.Found) || slices.ContainsFunc(r.Found, func(d diag.Diagnostic) bool {
			return d.Code == rules.ExprMaybeNull || d.Code == rules.ExprOperand || d.Code == rules.ExprUnknownField
		}) {
			refused++
			return
		}
		passed++
		payload := promisedPayload(t)
		if err := contract.Check(payload); err != nil {
			t.Fatalf("the payload does not fit: %v", err)
		}
		_, err := e.Eval(datum.Env{"event": map[string]any{"payload": payload}})
		if err != nil && !foreseen(err.Error()) {
			t.Errorf("%s\nwas found right, and fails with %v\nfor %v\nwith warnings %v", source, err, payload, r.Found)
		}
		if err == nil {
			checkOutline(t, source, e, payload)
		}
	})
	if passed < refused/50 {
		t.Errorf("only %d of %d expressions pass the check: the test tests nothing", passed, passed+refused)
	}
}

// foreseen tells failures that no type can tell before.
func foreseen(message string) bool {
	for _, text := range []string{"has no element", "division by zero", "finite number", "64 bits", "too many steps", "64 KiB"} {
		if strings.Contains(message, text) {
			return true
		}
	}
	return false
}

// checkOutline compares a value with what was said of it.
func checkOutline(t *rapid.T, source string, e *expr.Expr, payload any) {
	v, err := e.Eval(datum.Env{"event": map[string]any{"payload": payload}})
	if err != nil {
		t.Fatal(err)
	}
	if why := outside(v, e.Result); why != "" {
		t.Errorf("%s\nis said to be %s, and is %v: %s\nfor %v", source, e.Result.Dump(4), v, why, payload)
	}
}

// outside says how a value is none that an outline allows; empty when it is one.
func outside(v any, o *typing.Outline) string {
	if o == nil {
		return ""
	}
	s := datum.ShapeOfValue(v)
	if s&o.Shape == 0 && !(s&datum.NumberShape != 0 && o.Shape&datum.NumberShape != 0) {
		return fmt.Sprintf("want %s, have %s", o.Shape, s)
	}
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if why := outside(x, o.Elem); why != "" {
				return "element: " + why
			}
		}
	case map[string]any:
		for name, m := range o.Members {
			x, there := v[name]
			if !there && m.Required {
				return name + " is missing"
			}
			if there {
				if why := outside(x, m.Outline); why != "" {
					return name + ": " + why
				}
			}
		}
	case nil:
	default:
		if o.Words != nil && s != datum.ListShape && s != datum.MapShape && !typing.ContainsWord(o.Words, v) {
			return "not among its values"
		}
	}
	return ""
}
