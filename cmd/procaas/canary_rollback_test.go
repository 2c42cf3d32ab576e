package main

import (
	"path/filepath"
	"strings"
	"testing"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
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

// While a version is on trial, a node that starts with files that nobody has reloaded does not use them.
func TestStartDuringACanaryKeepsTheCurrentVersion(t *testing.T) {
	t.Parallel()
	o := &operated{t: t, dir: t.TempDir()}
	o.write(polite)
	db := "sqlite:" + filepath.Join(t.TempDir(), "o.db")
	server, stop := startNodeUntil(t, db, o.dir)
	o.server, o.client = server, client.New(server, "")
	o.write(strings.Replace(polite, "answer: pong", "answer: tried", 1))
	o.command(cli.ExitFine, "canary [0-9a-f]+ at 5%", "reload", "--canary", "5%", "--hold")
	before, err := o.client.Canary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop()
	o.write(strings.Replace(polite, "answer: pong", "answer: edited", 1))
	o.server = startNode(t, db, o.dir)
	o.client = client.New(o.server, "")
	after, err := o.client.Canary(t.Context())
	if err != nil || after.Phase != canary.Running {
		t.Errorf("have %+v, %v, want the canary to go on", after, err)
	}
	all, err := o.client.Versions(t.Context(), 10)
	if err != nil || len(all) != 2 || all[0].Version != before.Old {
		t.Errorf("have %+v, %v, want %s current", all, err, before.Old)
	}
	o.command(cli.ExitFine, `set.answer: "pong" -> "edited"`, "reload")
}
