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
