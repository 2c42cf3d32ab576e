package dsl

import (
	"fmt"
	"slices"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/syntax"
	"procaas/dsl/tree"
)

// reportChain reports a critical handler that needs what may be off, with the way of the null
// from its cause to the read.
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
	what, means := read.Path[:2], []string{p.withDefault(h, read)}
	if read.Path[0] == "sources" {
		what = read.Path[:3]
	}
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

// withDefault says how a handler reads a value that may be null.
func (p *proof) withDefault(h *tree.Handler, read datum.Read) string {
	mended := "!$ " + syntax.InQuotes(read.Path.String()+" ?? 0")
	values := []*expr.Value{h.Enabled, h.With(), h.Body, h.Result}
	for _, s := range p.pipeline.Stages {
		values = append(values, s.Enabled)
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
	return "read it with a default, for example " + mended
}

// when says in which case the handlers of a chain leave a null. Each list holds their ids in
// quotes.
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

// verb is the ending for one handler, or for many.
func verb(of []string, one, many string) string {
	if len(of) > 1 {
		return many
	}
	return one
}

// orLast gives the last of several means, joined to those before.
func orLast(means []string) string {
	if len(means) == 1 {
		return means[0]
	}
	return ", or " + means[len(means)-1]
}
