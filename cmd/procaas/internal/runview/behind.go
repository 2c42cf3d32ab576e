package runview

import (
	"cmp"
	"fmt"

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// Behind says which run of its key a run waits behind, how that one stands and what to do; empty
// for a run that does not wait for its key.
func Behind(q *cli.Call, v checkpoint.RunView) string {
	if !v.Blocked {
		return ""
	}
	const unknown = "waits behind an earlier run of its key\n"
	entity, err := q.Entity(q.Ctx, v.Flow, v.Key)
	if err != nil {
		return unknown // what else is known of the run is told anyway
	}
	id := cmp.Or(entity.BlockedBy, ahead(entity.Runs, v))
	if id == "" {
		return unknown
	}
	before, err := q.Run(q.Ctx, id)
	if err != nil {
		return unknown
	}
	text := fmt.Sprintf("waits behind run %s (%s, %s)", id, before.Pipeline, before.Status)
	if why := cmp.Or(before.Error, before.Reason, Standstill(before)); why != "" {
		text += ": " + why
	}
	if before.Status == model.Failed {
		text += fmt.Sprintf("\nmend the cause and run procaas runs retry %s, or procaas runs cancel %s", id, id)
	}
	return text + "\n"
}

// ahead finds the run that the key works on. Those that wait for it, for a time or for a state of
// the key are not.
func ahead(runs []checkpoint.RunView, v checkpoint.RunView) (id string) {
	rank := map[model.Status]int{model.Running: 3, model.Parked: 2, model.Waiting: 1}
	best := 0
	for _, r := range runs {
		if r.ID == v.ID || r.Blocked || r.Accepted.After(v.Accepted) || r.Status == model.Waiting && r.Due != nil {
			continue
		}
		if at := rank[r.Status]; at > best {
			id, best = r.ID, at
		}
	}
	return id
}
