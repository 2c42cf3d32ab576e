package queue

import (
	"context"

	"procaas/engine"
	"procaas/engine/model"
)

// StatsOfTasks counts the tasks of each type.
//
// The response has types, a list. Each element has the type, its mode and the numbers of its tasks
// by state. estimated lists the states whose numbers are estimates. raised counts tasks that waited
// longer than max-wait and went before others. asked reports whether any worker asked for such
// tasks within a month. lag is how many seconds the most urgent task has waited beyond its
// tolerance. In addition, late names the types whose lag is over max-lag, and dead is the number of
// all dead letters.
//
//	id: count
//	queue.stats: {max-lag: 60}
type StatsOfTasks struct {
	bound

	// MaxLag is the number of seconds from which a type is late.
	MaxLag float64 `yaml:"max-lag" default:"0" min:"0"`
}

// Handle implements [engine.Handler].
func (h *StatsOfTasks) Handle(ctx context.Context, _ *engine.Call) (model.Result, error) {
	store, err := h.tasks()
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	stats, err := store.Admin.TaskStats(ctx)
	if err != nil {
		return model.Result{}, err
	}
	types, late, dead := []any{}, []any{}, 0
	for i := range stats {
		t := &stats[i]
		estimated := []any{}
		for _, state := range t.Estimated {
			estimated = append(estimated, string(state))
		}
		types = append(types, map[string]any{
			"estimated": estimated, "raised": int(t.Raised), "asked": !t.Asked.IsZero(),
			"type": t.Type, "mode": string(t.Mode), "ready": int(t.Ready), "waiting": int(t.Waiting), "starting": int(t.Starting),
			"running": int(t.Running), "scheduled": int(t.Scheduled), "failed": int(t.Failed), "lag": t.Lag.Seconds(),
		})
		dead += int(t.Failed)
		if t.Lag.Seconds() > h.MaxLag {
			late = append(late, t.Type)
		}
	}
	return model.Result{Response: map[string]any{"types": types, "late": late, "dead": dead}}, nil
}
