package planner

import (
	"procaas/dsl/tree"
	"procaas/engine/model"
)

// Fallback returns the fallback by which a handler goes out of the flow; nil when
// it never does.
func (s *Step) Fallback() *tree.Fallback {
	if s.Handler.IsCritical() {
		return nil
	}
	return s.Handler.Fallback
}

// Fails reports whether a call that came to an error counts as a failure. Others
// say nothing about the handler: that what it asked for is not there, or that it
// asked wrongly.
func (s *Step) Fails(err error) bool {
	if f := s.Handler.Fallback; f != nil && len(f.On) > 0 {
		return model.InClass(err, f.On)
	}
	return model.InClass(err, tree.DefaultRetry().On) || model.ClassOf(err) == "other" && !model.IsPermanent(err)
}

// Within lists the handlers of a plan with those of the pipelines that it calls.
func (p *Plan) Within(seen map[*Plan]bool) (out []*Step) {
	if seen[p] {
		return nil
	}
	seen[p] = true
	for _, s := range p.Steps {
		out = append(out, s)
		if s.Callee != nil {
			out = append(out, s.Callee.Within(seen)...)
		}
	}
	return out
}

// Computes reports whether the core decides the handler by itself, without a call.
func (s *Step) Computes() bool { return s.Type.Name == "" || s.Type.SetsState }

// StandsIn reports whether something fills the state when the handler is out.
func (s *Step) StandsIn() bool {
	return s.Handler.Fallback != nil && !s.Handler.Fallback.Result.IsNull()
}
