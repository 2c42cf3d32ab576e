package main

import (
	"strings"
	"testing"

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/canary"
)

const polite = `
pipelines:
  - id: ping
    shared-state: {answer: null}
    stages: [{id: only, handlers: [{id: pong, set: {answer: pong}}]}]
`

// A node learns of the end of a canary with its next beat. What an operator orders before that holds for what is stored.
func TestRollbackGoesByTheStore(t *testing.T) {
	t.Parallel()
	o := operateNode(t, polite)
	try := func(answer string) (version string) {
		t.Helper()
		o.write(strings.Replace(polite, "answer: pong", "answer: "+answer, 1))
		o.command(cli.ExitFine, "canary [0-9a-f]+ at 5%", "reload", "--canary", "5%")
		v, err := o.client.Canary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v.New
	}
	promoted := func(version string) {
		t.Helper()
		eventually(t, "the version to be current", func() bool {
			v, err := o.client.Versions(t.Context(), 1)
			return err == nil && v[0].Version == version
		})
	}
	for _, answer := range []string{"a", "b", "c"} {
		version := try(answer)
		o.command(cli.ExitFine, "at 100%", "promote")
		promoted(version)
		o.command(cli.ExitFine, `(?s)before `+version+`.*set.answer: "`+answer+`" -> "pong"`, "rollback")
	}
	version := try("d")
	o.command(cli.ExitFine, `set.answer: "d" -> "pong"`, "rollback", "--reason", "rude")
	o.command(cli.ExitFindings, version[:12]+` is rolled back already: .*rude; name a version`, "rollback")
	if v, err := o.client.Canary(t.Context()); err != nil || v.Phase != canary.RolledBack {
		t.Errorf("have %+v, %v", v, err)
	}
}
