package planner

import (
	"time"

	"procaas/dsl/tree"
	"procaas/engine/model"
)

// Fallback returns the fallback of a handler, or nil.
func (s *Step) Fallback() *tree.Fallback {
	if s.Handler.IsCritical() {
		return nil
	}
	return s.Handler.Fallback
}

// Fails reports whether the error of a call counts as a failure of the handler. Other errors say
// nothing about it, for example that something does not exist or that the request was wrong.
func (s *Step) Fails(err error) bool {
	if f := s.Handler.Fallback; f != nil && len(f.On) > 0 {
		return model.InClass(err, f.On)
	}
	// A response that does not fit its schema is permanent for the run, but it is the service that is broken.
	class := model.ClassOf(err)
	return model.InClass(err, tree.DefaultRetry().On) || class == "schema" || class == "other" && !model.IsPermanent(err)
}

// IsSlow reports whether a call took so long that its handler says it counts as a failure.
func (s *Step) IsSlow(took time.Duration) bool {
	f := s.Handler.Fallback
	return f != nil && f.SlowerThan > 0 && took > f.SlowerThan
}

// Within lists the handlers of a plan, including those of the pipelines that it calls.
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

// Computes reports whether the core decides the handler without a call.
func (s *Step) Computes() bool { return s.Type.Name == "" || s.Type.SetsState }

// StandsIn reports whether the handler has a fallback result that sets the state.
func (s *Step) StandsIn() bool {
	return s.Handler.Fallback != nil && !s.Handler.Fallback.Result.IsNull()
}
