package main

import (
	"slices"
	"testing"

	"procaas/engine/api/cli"
)

// TestOldNamesOfCommandsWork has what scripts wrote before commands moved.
func TestOldNamesOfCommandsWork(t *testing.T) {
	t.Parallel()
	root := newRoot(cli.Streams{})
	for _, c := range []struct{ have, want []string }{
		{[]string{"deploy", "flows/", "--dry-run"}, []string{"release", "deploy", "flows/", "--dry-run"}},
		{[]string{"versions", "diff", "1a2b", "3c4d"}, []string{"release", "versions", "diff", "1a2b", "3c4d"}},
		{[]string{"help", "rollback"}, []string{"help", "release", "rollback"}},
		{[]string{"__complete", "reload", ""}, []string{"__complete", "release", "reload", ""}},
		{[]string{"balancer", "ban", "w1"}, []string{"balancer", "lever", "ban", "w1"}},
		{[]string{"demo-balancer", "--for", "2m"}, []string{"demo", "balancer", "--for", "2m"}},
		// What is not a former name in its place stays.
		{[]string{"balancer", "status"}, []string{"balancer", "status"}},
		{[]string{"submit", "deploy"}, []string{"submit", "deploy"}},
		{[]string{"release", "deploy"}, []string{"release", "deploy"}},
		{nil, nil},
	} {
		if have := today(root, c.have); !slices.Equal(have, c.want) {
			t.Errorf("%q: want %q, have %q", c.have, c.want, have)
		}
	}
}

// TestHelpListsTheUsualCommands counts what a newcomer meets first.
func TestHelpListsTheUsualCommands(t *testing.T) {
	t.Parallel()
	root := newRoot(cli.Streams{})
	for _, name := range usual {
		if c, _, err := root.Find([]string{name}); err != nil || c.Hidden {
			t.Errorf("%s is not a command: %v", name, err)
		}
	}
	if len(usual) > 29 { // and help itself
		t.Errorf("the help lists %d commands, want at most 30 with help", len(usual)+1)
	}
}
