package main

import (
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/wire"
	"procaas/engine/model"
)

const questioned = `configs:
  LOUD: {enabled: true}
pipelines:
  - id: work
    shared-state: {total: 0}
    stages:
      - id: first
        handlers: [{id: count, set: {total: !$ event.payload.total}}]
      - id: last
        handlers:
          - {id: tell, critical: false, enabled: !$ shared-state.total > 10 and configs.LOUD.enabled, fail: {message: no voice}}
          - {id: end, set: {total: 100}}
`

const refused = `services: [{id: bank, url: "http://127.0.0.1:1"}]
pipelines:
  - id: work
    stages: [{id: only, handlers: [{id: charge, retry: {attempts: 2, min-delay: 10ms}, request: {service: bank, path: /}}]}]
`

// A retry begins a handler afresh. Why it had failed before is what the next one on call asks first.
func TestOperatorSeesTheErrorsBeforeARetry(t *testing.T) {
	t.Parallel()
	o := operateNode(t, refused)
	run, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"})
	if err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `(?s)attempt 1 at .*connection refused\nattempt 2 at .*connection refused\n`, "explain", run.Run, "charge")
	o.command(cli.ExitFine, `^`+run.Run, "runs", "retry", run.Run, "--reason", "bank is back")
	before := `before the retry by anonymous at .* \(bank is back\): failed: work/only/charge: attempt 2: .*connection refused\n`
	o.command(cli.ExitFine, before, "runs", "show", run.Run)
	o.command(cli.ExitFine, before, "explain", run.Run, "charge")
}

// The person on call asks why a handler was left out, and gets the values of then.
func TestOperatorLearnsWhyAHandlerRanOrNot(t *testing.T) {
	t.Parallel()
	o := operateNode(t, questioned)
	submit := func(total int) string {
		t.Helper()
		r, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work", Payload: map[string]any{"total": total}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Run
	}
	small := submit(7)
	o.wait(model.Succeeded, 1)
	large := submit(12)
	o.wait(model.Succeeded, 2)
	o.command(cli.ExitFine, `LOUD`, "config", "set", "LOUD", `{"enabled": false}`)
	o.command(cli.ExitFine, `(?s)^work/last/tell in run `+small+` \(succeeded\): skipped\n\n`+
		`it was left out: enabled is false: shared-state.total > 10 and configs.LOUD.enabled\ndecided by enabled, finished .*`+
		`enabled at .*a.yaml:11:\d+: false\n.*\^ +7\n.*\^ +false\n.*not needed\n.*\^ +false\n`, "explain", small, "tell")
	o.command(cli.ExitFine, `(?s)it ran, and gave up after its first attempt: no voice\ndecided by error, attempts: 1, started`, "explain",
		large, "work/last/tell")
	o.command(cli.ExitFine, `"decided_by": "enabled"`, "explain", small, "tell", "--format", "json")
	o.command(cli.ExitUsage, `pipeline work has no handler tel; did you mean tell\?`, "explain", small, "tel")
	o.command(cli.ExitUsage, `there is no run with the id or the key "nothing"`, "explain", "nothing", "tell")
	o.command(cli.ExitUsage, `--format json is for procaas explain RUN PATH`, "explain", "request", "--format", "json")
}
