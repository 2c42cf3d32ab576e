package ui

import (
	"testing"
	"time"

	"procaas/engine/api/ui/seen"
	"procaas/engine/checkpoint"
	"procaas/engine/model"
)

// A run that waits for its time says so, and where.
func TestRunsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	due := time.Now().Add(time.Hour)
	nap := checkpoint.HandlerView{Path: "work/s/nap", Outcome: model.OutcomeWaiting, Due: &due}
	held := nap
	held.Reason = "hold: push is slow"
	for want, r := range map[string]checkpoint.RunView{
		"waits for a time":                      {Handlers: []checkpoint.HandlerView{nap}},
		"hold: push is slow":                    {Handlers: []checkpoint.HandlerView{held}},
		"waits for an earlier run of its key":   {Blocked: true},
		"attempt 1 was under way when its node": {Reason: "attempt 1 was under way when its node"},
		"":                                      {Finished: &due, Handlers: []checkpoint.HandlerView{nap}},
	} {
		if have := causeOf(r); have.Text != want {
			t.Errorf("have %q, want %q", have.Text, want)
		}
	}
}

// The page of incidents tells how long a problem lasted, and what happened meanwhile.
func TestIncidentsTellWhatTheyCost(t *testing.T) {
	t.Parallel()
	from := time.Unix(1_700_000_000, 0)
	d := incidentsData{Until: from}
	d.tell(seen.Chapter{
		Samples: []seen.Sample{
			{At: from.Unix(), Failed: 2, LeftOut: 4},
			{At: from.Unix() + 10, Failed: 2, LeftOut: 4},
			{At: from.Unix() + 60, Failed: 1},
		},
		Wrong: []seen.Incident{{Name: "orders", Is: isDown, From: from.Unix(), To: from.Unix() + 20}},
	}, from.Add(time.Hour))
	if in := d.Incidents; len(in) != 1 || in[0].Failed != 4 || in[0].LeftOut != 8 || in[0].Lasted != "20 s" || d.FailedTotal != 5 {
		t.Errorf("want an incident of 20 s with 4 failed runs and 8 calls left out, and 5 failed runs in all; have %+v, %d",
			d.Incidents, d.FailedTotal)
	}
}
