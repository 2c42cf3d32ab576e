package dsl

import (
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/rules"
)

// requestType is the handler type of a handler that has the fields of the type
// directly in it, as in a bare url.
const requestType = "request"

// A handlerBody is what a handler says in the words of its type.
type handlerBody struct {
	typ   *Type
	key   diag.Span // of what names the type
	value *Value
}

// handler checks a handler, or what has the body of one too: its own fields, and
// the body that belongs to its type.
func (d *decoder) handler(v *Value, s *Spec) {
	if s == d.handlerSpec && v.Get("use") != nil {
		d.expand(v)
	}
	var typed, bare []int
	request := d.typeNamed(requestType)
	defer d.enter(s, kebab(s.Name), "")()
	for i, k := range v.keys {
		switch f := s.Field(k.Name); {
		case f != nil:
			d.check(v.items[i], f, k.Name, allowance{})
		case d.typeNamed(k.Name) != nil:
			typed = append(typed, i)
		case request != nil && request.Spec.Field(k.Name) != nil:
			bare = append(bare, i)
		default:
			d.unknownHandlerKey(v, i, s)
		}
	}
	d.required(v, s, kebab(s.Name))
	body := d.body(v, typed, bare)
	if body == nil {
		return
	}
	d.bodies[v] = body
	if body.value.kind != valueMap {
		d.wrongKind(body.value, &Field{Name: body.typ.Name, Kind: ObjectKind, Spec: body.typ.Spec}, body.typ.Name)
		body.value = &Value{Span: body.value.Span, kind: valueMap}
		return
	}
	d.object(body.value, body.typ.Spec, body.typ.Name, allowance{body: true, noSecret: body.typ.SetsState})
}

// expandStage makes a stage of one handler out of a handler that stands in the
// place of a stage: one that has no handlers, but the body of a handler.
func (d *decoder) expandStage(v *Value) {
	if v.Get("handlers") != nil || v.Get("choose") != nil {
		return
	}
	stage, body := &Value{}, false
	for i, k := range v.keys {
		switch {
		case k.Name == "id" || d.stageSpec.Field(k.Name) != nil && d.handlerSpec.Field(k.Name) == nil: // others are the handler's
			stage.keys, stage.items = append(stage.keys, k), append(stage.items, v.items[i])
		case d.ofBody(k.Name):
			body = true
		case d.handlerSpec.Field(k.Name) == nil:
			return
		}
	}
	if !body {
		return
	}
	handler := &Value{kind: valueMap, Span: v.Span, keys: v.keys, items: v.items}
	at := head(v)
	d.report(diag.Diagnostic{
		Span: at, Severity: diag.Warning, Code: rules.StageHandler, Hint: "write the handler below handlers: of the stage",
		Message: "a handler stands in the place of a stage; it counts as a stage of this one handler",
	})
	v.keys = append(stage.keys, Key{"handlers", at})
	v.items = append(stage.items, &Value{kind: valueList, Span: v.Span, items: []*Value{handler}})
}

// ofBody tells whether a key of a handler names its type, or is a field of a
// request without its name.
func (d *decoder) ofBody(name string) bool {
	request := d.typeNamed(requestType)
	return d.typeNamed(name) != nil || request != nil && request.Spec.Field(name) != nil
}

// body finds the body among the entries of a handler: those that name a type,
// and those that a request would have below its own key. It is nil for a
// placeholder.
func (d *decoder) body(v *Value, typed, bare []int) *handlerBody {
	if len(typed) == 0 && len(bare) == 0 {
		return nil
	}
	if len(typed) == 0 {
		b := &Value{kind: valueMap, Span: v.keys[bare[0]].Span}
		for _, i := range bare {
			b.keys = append(b.keys, v.keys[i])
			b.items = append(b.items, v.items[i])
			b.Span.End = v.items[i].Span.End
		}
		return &handlerBody{d.typeNamed(requestType), v.keys[bare[0]].Span, b}
	}
	first := v.keys[typed[0]]
	for _, i := range typed[1:] {
		d.report(diag.Diagnostic{
			Span: v.keys[i].Span, Code: rules.TwoTypes, Hint: "make two handlers of it",
			Message: "a handler has one type, this one is " + first.Name + " and " + v.keys[i].Name,
			Related: []diag.Related{{Span: first.Span, Message: "the first type"}},
		})
	}
	for _, i := range bare {
		hint := "indent it below " + first.Name + ":"
		if first.Name != requestType {
			hint = "drop it, or make it a handler of its own"
		}
		d.errorf(v.keys[i].Span, rules.TwoTypes, hint, "field %q belongs to the handler type request, not to the handler itself", v.keys[i].Name)
	}
	value := v.items[typed[0]]
	if value.IsNull() {
		value = &Value{kind: valueMap, Span: first.Span}
	}
	return &handlerBody{d.typeNamed(first.Name), first.Span, value}
}

func (d *decoder) typeNamed(name string) *Type {
	for i := range d.types {
		if d.types[i].Name == name {
			return &d.types[i]
		}
	}
	return nil
}

// unknownHandlerKey reports a key that is neither a field nor a type. What
// looks most like one of them was probably meant.
func (d *decoder) unknownHandlerKey(h *Value, i int, s *Spec) {
	k, v := h.keys[i], h.items[i]
	if hint := d.strayHint(h, i, s, kebab(s.Name)); hint != "" {
		d.errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", describeData(k.Name), kebab(s.Name))
		return
	}
	var types []string
	for _, t := range d.types {
		types = append(types, t.Name)
	}
	fields := s.Names()
	known := slices.Concat(fields, types)
	if request := d.typeNamed(requestType); request != nil {
		known = append(known, request.Spec.Names()...)
	}
	near := diag.Suggest(k.Name, known)
	if slices.Contains(types, near) || near == "" && (v.kind == valueMap || strings.Contains(k.Name, ".")) {
		d.errorf(k.Span, rules.UnknownType, choice(k.Name, types, "the types are"), "unknown handler type %s", describeData(k.Name))
		return
	}
	hint := "the fields are " + strings.Join(fields, ", ") + ", and the name of a handler type"
	if meant := diag.DidYouMean(k.Name, known, ""); meant != "" {
		hint = meant + " " + hint
	}
	d.errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", describeData(k.Name), kebab(s.Name))
}
