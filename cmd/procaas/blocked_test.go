package main

import (
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/model"
)

const blocking = `flows: [{id: order, key: !$ event.payload.id}]
pipelines:
  - id: work
    flow: order
    stages: [{id: s, handlers: [{id: charge, enabled: !$ event.payload.fails, fail: {message: no money}}, {id: end, set: {}}]}]
  - id: slow
    flow: order
    stages: [{id: s, handlers: [{id: think, await: {event: thought, timeout: 1h}}]}]
`

// A run that waits for its key names the run before it, its state and the reason.
func TestRunsNameTheRunThatTheyWaitBehind(t *testing.T) {
	t.Parallel()
	o := operateNode(t, blocking)
	submit := func(pipeline, key string, fails bool) string {
		t.Helper()
		r, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: pipeline, Payload: map[string]any{"id": key, "fails": fails, "sum": 1.5}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Run
	}
	first := submit("work", "o-1", true)
	o.wait(model.Failed, 1)
	second, third := submit("work", "o-1", false), submit("work", "o-1", false)
	behind := `waits behind run ` + first + ` \(work, failed\): work/s/charge: .*no money\n` +
		`mend the cause and run procaas runs retry ` + first + `, or procaas runs cancel ` + first + `\n`
	o.command(cli.ExitFine, behind, "runs", "show", "o-1")
	o.command(cli.ExitFine, `(?m)^payload   {"fails":true,"id":"o-1","sum":1.5}$`, "runs", "show", first) // which of the runs of a key it is
	o.command(cli.ExitFine, behind, "explain", "o-1", "end")
	later := `2 later events of order o-1: ` + second + ` \(work\), ` + third + ` \(work\); they run in order after it, so cancel`
	o.command(cli.ExitFine, `blocks    `+later, "runs", "show", first)
	o.command(cli.ExitFine, `"blocks": true`, "runs", "show", first, "--format", "json")
	o.command(cli.ExitFine, `then: `+later, "runs", "retry", first, "--dry-run")
	o.command(cli.ExitFine, `then: `+later, "runs", "retry", first)
	o.wait(model.Failed, 1)

	first = submit("slow", "o-2", false)
	o.wait(model.Parked, 1)
	submit("work", "o-2", false)
	behind = `waits behind run ` + first + ` \(slow, parked\): slow/s/think until .*\n`
	o.command(cli.ExitFine, behind, "runs", "show", "o-2")
	o.command(cli.ExitFine, behind, "explain", "o-2", "end")
}
