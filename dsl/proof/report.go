package proof

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/steps"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
)

// reportChain reports a critical handler that needs an optional one, with the path of the null from its cause
// to the read.
func (p *proof) reportChain(h *tree.Handler, read datum.Read, chain []cause) {
	var off, fail, unchosen []string
	related := []diag.Related{{Span: h.PlaceOf("id", h.Span), Message: fmt.Sprintf("%q is critical", h.ID)}}
	for _, l := range slices.Backward(chain) {
		related = append(related, l.Related)
		name := fmt.Sprintf("%q", l.handler.ID)
		switch {
		case l.unchosen:
			unchosen = append(unchosen, name)
		case !l.handler.IsCritical() && !slices.Contains(off, name):
			off = append(off, name)
		case l.handler.GoesOn() != nil && !slices.Contains(fail, name):
			fail = append(fail, name)
		}
	}
	what := read.Path[:2]
	if read.Path[0] == "sources" {
		what = read.Path[:3]
	}
	means := append(p.tested(h, read, what.String()), p.withDefault(h, read))
	if len(off) > 0 {
		whom := off[0]
		if len(off) > 1 {
			whom = "one of them"
		}
		means = append([]string{"write critical: true in " + whom}, means...)
		if read.Path[0] != "sources" {
			means = append([]string{fmt.Sprintf("write fallback: {result: {%s: …}} in %s", read.Path[1], whom)}, means...)
		}
	} else if read.Path[0] != "sources" && len(fail) > 0 {
		means = append([]string{fmt.Sprintf("set %s in the result of that rule of on-error", read.Path[1])}, means...)
	} else if read.Path[0] != "sources" {
		means = append([]string{fmt.Sprintf("set %s in every branch, the last one without when", read.Path[1])}, means...)
	}
	p.Report(diag.Diagnostic{
		Span: read.Span, Code: rules.Degradation, Related: related, Hint: strings.Join(means[:len(means)-1], ", ") + orLast(means),
		Message: fmt.Sprintf("critical handler %q needs %s, which is null when %s", h.ID, what, when(off, fail, unchosen)),
	})
}

// reportNeverSet reports a read of a value that no earlier handler sets. It is an error if a later handler of
// the same stage sets it, since the reader probably expects that. A compensation runs later, so it may read it.
func (p *proof) reportNeverSet(h *tree.Handler, read datum.Read, i int) {
	name, reader := read.Path[1], p.Steps[i]
	d := diag.Diagnostic{
		Span: read.Span, Code: rules.NeverSet, Severity: diag.Warning,
		Message: fmt.Sprintf("shared-state.%s is null here: no handler sets it before", name),
		Hint:    fmt.Sprintf("set %s in the result of an earlier handler, or declare it with another first value than null", name),
	}
	condition := !reader.Stage.Enabled.IsNull() && reader.Stage.Enabled.Span.Covers(read.Span.Start)
	undo := slices.ContainsFunc(h.UndoReads(), func(r datum.Read) bool { return r.Span == read.Span })
	for _, a := range p.Sets[name] {
		if a.At < i || a.At == i && !condition || p.apart(a.At, i) || p.LocalTo(name, a.At) != p.LocalTo(name, i) {
			continue
		}
		writer := p.Steps[a.At]
		d.Message = fmt.Sprintf("shared-state.%s is null here: %q sets it later", name, writer.ID)
		d.Related = []diag.Related{{Span: a.Key.Span, Message: fmt.Sprintf("%q sets it here", writer.ID)}}
		switch {
		case undo:
		case writer.Stage != reader.Stage:
			d.Hint = fmt.Sprintf("move %q to a stage behind stage %q", h.ID, writer.Stage.ID)
			if condition {
				d.Hint = fmt.Sprintf("move stage %q behind stage %q", reader.Stage.ID, writer.Stage.ID)
			}
		case h.Branch != writer.Branch:
		default:
			d.Severity = diag.Error
			d.Hint = fmt.Sprintf("move %q above %q", writer.ID, h.ID)
			if condition {
				d.Hint = fmt.Sprintf("move %q to a stage before stage %q", writer.ID, reader.Stage.ID)
			}
			if writer.Handler != reader.Handler && p.needs(writer, reader) {
				d.Hint = p.withDefault(h, read)
			}
		}
		break
	}
	p.Report(d)
}

// needs reports whether a step reads the outcome of another one, or a name that it sets.
func (p *proof) needs(s, other steps.Step) bool {
	return slices.ContainsFunc(s.Reads(), func(r datum.Read) bool {
		return len(r.Path) > 1 && (r.Path[0] == "sources" && r.Path[1] == other.ID ||
			r.Path[0] == expr.StateRoot && slices.ContainsFunc(p.Sets[r.Path[1]], func(a steps.Assignment) bool { return p.Steps[a.At] == other }))
	})
}

// tested returns how to do without a value that is null: how a condition reads it, or how to leave the handler out.
// Outputs are always computed, so it returns nothing for them.
func (p *proof) tested(h *tree.Handler, read datum.Read, what string) []string {
	in := func(reads []datum.Read) bool {
		return slices.ContainsFunc(reads, func(r datum.Read) bool { return r.Span == read.Span })
	}
	switch {
	case in(p.Declared.Outputs.Reads()):
		return nil
	case in(h.ConditionReads()), slices.ContainsFunc(p.Declared.Stages, func(s *tree.Stage) bool { return in(s.ConditionReads()) }):
		return []string{fmt.Sprintf("test it first: %s != null and …", what)}
	case !h.Enabled.IsNull():
		return []string{fmt.Sprintf("add %s != null to enabled of %q", what, h.ID)}
	}
	return []string{fmt.Sprintf("write enabled: !$ %s != null in %q", what, h.ID)}
}

// withDefault returns how a handler should read a value that may be null.
func (p *proof) withDefault(h *tree.Handler, read datum.Read) string {
	mended := "!$ " + syntax.InQuotes(read.Path.String()+" ?? 0")
	values := []*expr.Value{h.Enabled, h.With(), h.Body, h.Result}
	for _, s := range p.Declared.Stages {
		values = append(values, s.Enabled)
		for _, b := range s.Choose {
			values = append(values, b.When)
		}
	}
	if h.ForEach != nil {
		values = append(values, h.ForEach.Items)
	}
	for _, v := range values {
		v.WalkExprs(func(e *expr.Expr) {
			if e.Span.File == read.Span.File && e.Span.Covers(read.Span.Start) {
				mended = e.WithDefault(read.Span, datum.AnyShape)
			}
		})
	}
	return "read it with a default that fits, for example " + mended
}

// when returns in which case the handlers of a chain leave a null. The lists have their quoted ids.
func when(off, fail, unchosen []string) string {
	var cases []string
	if len(off) > 0 {
		cases = append(cases, strings.Join(off, " and ")+verb(off, " is off", " are off"))
	}
	if len(fail) > 0 {
		cases = append(cases, strings.Join(fail, " and ")+verb(fail, " fails", " fail"))
	}
	if len(unchosen) > 0 {
		cases = append(cases, strings.Join(unchosen, " and ")+verb(unchosen, " is not chosen", " are not chosen"))
	}
	return strings.Join(cases, " and ")
}

// verb returns one of two forms, by the number of handlers.
func verb(of []string, one, many string) string {
	if len(of) > 1 {
		return many
	}
	return one
}

// orLast joins several causes with "or".
func orLast(means []string) string {
	if len(means) == 1 {
		return means[0]
	}
	return ", or " + means[len(means)-1]
}
