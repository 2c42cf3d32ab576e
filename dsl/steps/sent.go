package steps

import (
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/tree"
)

// A Sent is a part of a response that a critical call sends on, although the service may omit it: no schema
// requires it.
type Sent struct {
	From   *tree.Handler
	Member datum.Path // in the response; not empty
	By     *tree.Handler
	Name   datum.Path // in the shared state, on its way to the call; empty for none
	At     diag.Span  // where the response is read
}

// SentOn lists the parts of responses that critical calls with an effect send on, and that may be null. It
// omits those that an expression tests or replaces.
func (p *Pipeline) SentOn() (out []Sent) {
	for i, s := range p.Steps {
		if !s.IsCritical() || !p.types.Calls(s.Handler) || p.types.Fetches(s.Handler) {
			continue
		}
		s.Body.WalkExprs(func(e *expr.Expr) {
			for _, r := range unsureReads(e) {
				if r.Path[0] == "sources" {
					out = p.send(out, i, r, nil, Sent{By: s.Handler, At: r.Span})
				}
				if r.Path[0] != expr.StateRoot {
					continue
				}
				for _, a := range p.Sets[r.Path[1]] {
					for _, from := range unsureReads(a.Value.Expr()) {
						out = p.send(out, a.At+1, from, r.Path[2:], Sent{By: s.Handler, Name: r.Path[1:], At: a.Value.Span})
					}
				}
			}
		})
	}
	return out
}

// send adds what is read of a response and, of that, below.
func (p *Pipeline) send(out []Sent, before int, r datum.Read, below datum.Path, s Sent) []Sent {
	if SourceOf(r.Path) == "" || len(r.Path) < 3 || r.Path[2] != "response" || len(r.Path)+len(below) == 3 {
		return out
	}
	s.Member = append(append(datum.Path{}, r.Path[3:]...), below...)
	for _, from := range p.Steps[:before] {
		if from.ID == SourceOf(r.Path) && p.types.Calls(from.Handler) && from.ResponseContract == nil && from.Expected == nil && from.ForEach == nil {
			s.From = from.Handler
			return append(out, s)
		}
	}
	return out
}

// unsureReads lists the unguarded reads of an expression that may be null as a whole.
func unsureReads(e *expr.Expr) (out []datum.Read) {
	if e == nil || e.Result.Types()&datum.NullShape == 0 {
		return nil
	}
	for _, r := range e.Reads() {
		if !r.Guarded && len(r.Path) > 1 {
			out = append(out, r)
		}
	}
	return out
}
