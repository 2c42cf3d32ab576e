package core

import (
	"fmt"

	"procaas/engine/model"
)

// answer computes the outputs of the run's pipeline, only once. The outputs of a call become the
// response of its handler; see [Run.leaveCall].
func (r *Run) answer(live Live) error {
	p := r.plan.Pipeline
	if p.Outputs == nil || r.within != "" || r.outputs != nil {
		return nil
	}
	outputs, err := r.scope.outputs(live)
	if err != nil {
		return err
	}
	raw, err := model.EncodeData(outputs)
	if err != nil {
		return err
	}
	if limit := int(p.MaxState); len(raw) > limit {
		return fmt.Errorf("they are %d bytes, which have to be kept, and max-state is %d", len(raw), limit)
	}
	r.outputs = raw
	return nil
}

// Outputs returns the result as JSON. It is nil before the end, and if the pipeline declares no
// outputs. The receiver may be nil: a run that never began has no result.
func (r *Run) Outputs() []byte {
	if r == nil {
		return nil
	}
	return r.outputs
}
