package decode

import (
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A handlerBody is the part of a handler that its type defines.
type handlerBody struct {
	typ   *tree.Type
	key   diag.Span // of the key that names the type
	value *expr.Value
}

// handler checks a handler, or another mapping with the body of one: its own fields, and the body.
func (d *decoder) handler(v *expr.Value, s *spec.Spec) {
	if s == d.handlerSpec && v.Get("use") != nil {
		d.expand(v)
	}
	var typed, bare []int
	request := d.typeNamed(tree.RequestType)
	defer d.enter(s, spec.Kebab(s.Name), "")()
	for i, k := range v.Names {
		switch f := s.Field(k.Name); {
		case f != nil:
			d.check(v.Elems[i], f, k.Name, allowance{})
		case d.typeNamed(k.Name) != nil:
			typed = append(typed, i)
		case request != nil && request.Spec.Field(k.Name) != nil:
			bare = append(bare, i)
		default:
			d.unknownHandlerKey(v, i, s)
		}
	}
	d.required(v, s, spec.Kebab(s.Name))
	body := d.body(v, typed, bare)
	if body == nil {
		return
	}
	d.bodies[v] = body
	if body.value.Kind != expr.ValueMap {
		d.wrongKind(body.value, &spec.Field{Name: body.typ.Name, Kind: datum.ObjectKind, Spec: body.typ.Spec}, body.typ.Name)
		body.value = &expr.Value{Span: body.value.Span, Kind: expr.ValueMap}
		return
	}
	d.object(body.value, body.typ.Spec, body.typ.Name, allowance{body: true, noSecret: body.typ.SetsState})
}

// expandStage replaces a handler in the place of a stage by a stage with that handler. Such a mapping has no
// handlers, but the body of one.
func (d *decoder) expandStage(v *expr.Value) {
	if v.Get("handlers") != nil || v.Get("choose") != nil {
		return
	}
	stage, body := &expr.Value{}, false
	for i, k := range v.Names {
		switch {
		case k.Name == "id" || d.stageSpec.Field(k.Name) != nil && d.handlerSpec.Field(k.Name) == nil: // all other keys belong to the handler
			stage.Names, stage.Elems = append(stage.Names, k), append(stage.Elems, v.Elems[i])
		case d.ofBody(k.Name):
			body = true
		case d.handlerSpec.Field(k.Name) == nil:
			return
		}
	}
	if !body {
		return
	}
	handler := &expr.Value{Kind: expr.ValueMap, Span: v.Span, Names: v.Names, Elems: v.Elems}
	at := v.Head()
	d.Report(diag.Diagnostic{
		Span: at, Severity: diag.Warning, Code: rules.StageHandler, Hint: "write the handler below handlers: of the stage",
		Message: "a handler stands in the place of a stage; it counts as a stage of this one handler",
	})
	v.Names = append(stage.Names, expr.Key{Name: "handlers", Span: at})
	v.Elems = append(stage.Elems, &expr.Value{Kind: expr.ValueList, Span: v.Span, Elems: []*expr.Value{handler}})
}

// ofBody reports whether a key of a handler names its type, or is a field of request in short form.
func (d *decoder) ofBody(name string) bool {
	request := d.typeNamed(tree.RequestType)
	return d.typeNamed(name) != nil || request != nil && request.Spec.Field(name) != nil
}

// body returns the body of a handler: the keys that name a type, and those that belong below request. It
// returns nil for a placeholder.
func (d *decoder) body(v *expr.Value, typed, bare []int) *handlerBody {
	if len(typed) == 0 && len(bare) == 0 {
		return nil
	}
	if len(typed) == 0 {
		b := &expr.Value{Kind: expr.ValueMap, Span: v.Names[bare[0]].Span}
		for _, i := range bare {
			b.Names = append(b.Names, v.Names[i])
			b.Elems = append(b.Elems, v.Elems[i])
			b.Span.End = v.Elems[i].Span.End
		}
		return &handlerBody{d.typeNamed(tree.RequestType), v.Names[bare[0]].Span, b}
	}
	first := v.Names[typed[0]]
	for _, i := range typed[1:] {
		d.Report(diag.Diagnostic{
			Span: v.Names[i].Span, Code: rules.TwoTypes, Hint: "make two handlers of it",
			Message: "a handler has one type, this one is " + first.Name + " and " + v.Names[i].Name,
			Related: []diag.Related{{Span: first.Span, Message: "the first type"}},
		})
	}
	for _, i := range bare {
		hint := "indent it below " + first.Name + ":"
		if first.Name != tree.RequestType {
			hint = "drop it, or make it a handler of its own"
		}
		d.Errorf(v.Names[i].Span, rules.TwoTypes, hint, "field %q belongs to the handler type request, not to the handler itself",
			v.Names[i].Name)
	}
	value := v.Elems[typed[0]]
	if value.IsNull() {
		value = &expr.Value{Kind: expr.ValueMap, Span: first.Span}
	}
	return &handlerBody{d.typeNamed(first.Name), first.Span, value}
}

func (d *decoder) typeNamed(name string) *tree.Type {
	for i := range d.types {
		if d.types[i].Name == name {
			return &d.types[i]
		}
	}
	return nil
}

// unknownHandlerKey reports a key that is neither a field nor a type. It suggests the most similar one.
func (d *decoder) unknownHandlerKey(h *expr.Value, i int, s *spec.Spec) {
	k, v := h.Names[i], h.Elems[i]
	if hint := d.strayHint(h, i, s, spec.Kebab(s.Name)); hint != "" {
		d.Errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", datum.DescribeData(k.Name), spec.Kebab(s.Name))
		return
	}
	if hint := d.ownersHint(k.Name); hint != "" {
		d.Errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", datum.DescribeData(k.Name), spec.Kebab(s.Name))
		return
	}
	var types []string
	for _, t := range d.types {
		types = append(types, t.Name)
	}
	fields := s.Names()
	known := slices.Concat(fields, types)
	if request := d.typeNamed(tree.RequestType); request != nil {
		known = append(known, request.Spec.Names()...)
	}
	near := diag.Suggest(k.Name, known)
	if slices.Contains(types, near) || near == "" && (v.Kind == expr.ValueMap || strings.Contains(k.Name, ".")) {
		hint := "the types are " + strings.Join(tree.OwnTypes(types), ", ")
		if meant := diag.DidYouMean(k.Name, types, ""); meant != "" {
			hint = meant + " " + hint
		}
		d.Errorf(k.Span, rules.UnknownType, hint, "unknown handler type %s", datum.DescribeData(k.Name))
		return
	}
	hint := "the fields are " + strings.Join(fields, ", ") + ", and the name of a handler type"
	if meant := diag.DidYouMean(k.Name, known, ""); meant != "" {
		hint = meant + " " + hint
	}
	d.Errorf(k.Span, rules.UnknownField, hint, "unknown field %s of the %s", datum.DescribeData(k.Name), spec.Kebab(s.Name))
}

// ownersHint returns the mappings around a handler that have a field, or "".
func (d *decoder) ownersHint(name string) string {
	var owners []string
	pipeline := d.file.Field("pipelines").Elem.Spec
	for _, s := range []*spec.Spec{d.stageSpec, pipeline} {
		if s.Field(name) != nil {
			owners = append(owners, "the "+spec.Kebab(s.Name))
		}
	}
	if d.file.Field(name) != nil {
		owners = append(owners, "the top of the file")
	}
	if len(owners) == 0 {
		return ""
	}
	return "it belongs to " + strings.Join(owners, " or to ") + ": move it there"
}
