package runview

import (
	"cmp"
	"fmt"
	"strings"

	"procaas/dsl/diag"
	"procaas/engine/api/cli"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// Behind names the run of the same key for which a run waits, with its state and what to do. It returns "" for
// a run that does not wait for its key.
func Behind(q *cli.Call, v checkpoint.RunView) string {
	if !v.Blocked {
		return ""
	}
	const unknown = "waits behind an earlier run of its key\n"
	entity, err := q.Entity(q.Ctx, v.Flow, v.Key)
	if err != nil {
		return unknown // the rest is shown anyway
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

// mostFollowers is how many later runs of a key are listed.
const mostFollowers = 5

// Followers lists later events of the key that wait for a run, or returns "".
func Followers(q *cli.Call, v checkpoint.RunView) string {
	entity, err := q.Entity(q.Ctx, v.Flow, v.Key)
	if err != nil {
		return "" // the rest is shown anyway
	}
	var later []string
	for _, r := range entity.Runs {
		if r.Blocked && r.ID != v.ID {
			later = append([]string{fmt.Sprintf("%s (%s)", r.ID, r.Event.Type)}, later...)
		}
	}
	if len(later) == 0 {
		return ""
	}
	named := strings.Join(later[:min(mostFollowers, len(later))], ", ")
	if len(later) > mostFollowers {
		named += " …"
	}
	return fmt.Sprintf("%s of %s %s: %s; they run in order after it, so cancel those that must not run",
		diag.Plural(len(later), "later event"), v.Flow, v.Key, named)
}

// ahead returns the current run of the key. It ignores runs that wait for it, for a time or for a state.
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
