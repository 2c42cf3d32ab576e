package node

import (
	"time"

	"procaas/engine/model"
	"procaas/engine/stats"
)

// unservedAgain is when such a run is looked at again though nobody called it up.
const unservedAgain = time.Hour

// await keeps a run whose event no pipeline serves at present, until one does.
func (j opening) await(reason string) {
	j.at("").Warn("event waits for a pipeline that serves it", "type", j.claimed.Event.Type, "flow", j.claimed.Flow)
	j.close(model.Change{
		Status: model.Parked, Due: j.n.d.Clock.Now().Add(unservedAgain), Cause: stats.CauseUnserved + j.def.Bundle.Hash,
		Error: reason + "; it waits until a definition does", ErrorClass: model.ClassUnserved,
	})
}
