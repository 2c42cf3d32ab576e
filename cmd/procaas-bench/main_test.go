package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestWrongFlagsAreRefusedAtOnce: a name that is wrong must not come up after
// minutes of the measurements before it.
func TestWrongFlagsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"-only flows,latncy", `-only: want some of flows,latency,`},
		{"-only=", `have ""`},
		{"-contestants naive;nobody", `-contestants: want some of naive;grouped;`},
		{"-rounds 0", "greater than 0"},
		{"-span 0s", "greater than 0"},
		{"-figures flow", `-figures: want some of flows latency`},
		{"-figures flows -beside old", "neither -beside"},
		{"-procs -1", "-procs not below it"},
		{"flows", `want flags only, have "flows"`},
		{"-nothing", "not defined: -nothing"},
	} {
		_, err := parse(strings.Fields(c.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %q, have %v", c.args, c.want, err)
		}
	}
	o, err := parse([]string{"-only", "idle,flows", "-contestants", "naive;procaas on SQLite"}, io.Discard)
	if err != nil || len(o.only) != 2 || !slices.Equal(o.match, []string{"naive", "procaas on SQLite"}) {
		t.Errorf("have %+v, %v", o, err)
	}
	o, err = parse([]string{"-only", "queue-drain", "-contestants", overHTTP}, io.Discard)
	if ways := (&bench{options: o}).drainWays(); err != nil || len(ways) != 1 || ways[0].name != overHTTP {
		t.Errorf("want the workers over HTTP alone, have %d ways, %v", len(ways), err)
	}
}

// TestGroupsKeepTheirSizes: flags may change them, and then the command on the page says so.
func TestGroupsKeepTheirSizes(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-figures", "queue  flows", "-flows", "10"}, io.Discard)
	if err != nil || len(o.groups) != 2 {
		t.Fatalf("want two groups, have %+v, %v", o.groups, err)
	}
	flows, queue := o.groups[0], o.groups[1]
	if flows.options.flows != 10 || flows.command != `make figures ONLY=flows ARGS="-flows 10"` || !slices.Equal(flows.options.only, []string{"flows"}) {
		t.Errorf("have %+v", flows)
	}
	if queue.options.rounds != 3 || queue.options.tasks != defaultOptions().tasks {
		t.Errorf("want the sizes of the group kept, have %+v", queue)
	}
	if o, err = parse([]string{"-figures", "all"}, io.Discard); err != nil || len(o.groups) != len(figureGroups) {
		t.Errorf("want all groups, have %d, %v", len(o.groups), err)
	}
}

// TestHelpNamesAllThatCanBeMeasured also keeps flags of libraries out of it.
func TestHelpNamesAllThatCanBeMeasured(t *testing.T) {
	t.Parallel()
	var help strings.Builder
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("want flag.ErrHelp, have %v", err)
	}
	for _, name := range append(partNames(), contestantNames()...) {
		if !strings.Contains(help.String(), name) {
			t.Errorf("the help does not name %s:\n%s", name, help.String())
		}
	}
}
