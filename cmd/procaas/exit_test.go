package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"procaas/engine/api/cli"
)

// TestExitCodeTellsWhetherToTryAgain holds what --help says of commands that call a server.
func TestExitCodeTellsWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		http.StatusBadRequest: cli.ExitUsage, http.StatusNotFound: cli.ExitUsage, http.StatusRequestEntityTooLarge: cli.ExitUsage,
		http.StatusUnprocessableEntity: cli.ExitUsage,
		http.StatusUnauthorized:        cli.ExitFindings, http.StatusForbidden: cli.ExitFindings, http.StatusConflict: cli.ExitFindings,
		http.StatusPreconditionFailed: cli.ExitFindings,
		http.StatusTooManyRequests:    cli.ExitBroken, http.StatusInternalServerError: cli.ExitBroken, http.StatusBadGateway: cli.ExitBroken,
		http.StatusServiceUnavailable: cli.ExitBroken,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code": "some_code", "detail": "what is wrong", "status": %d}`, status)
		}))
		t.Cleanup(srv.Close)
		for _, line := range []string{
			"runs list", "runs retry r-1 r-2", "runs migrate r-1 --dry-run", "switch off work --for 1m",
			"submit --type work", "balancer status",
		} {
			var out bytes.Buffer
			code := Main(t.Context(), append(strings.Fields(line), "--server", srv.URL), cli.Streams{
				In: strings.NewReader(""), Out: &out,
				Err: &out,
			})
			if code != want || !strings.Contains(out.String(), "what is wrong") {
				t.Errorf("procaas %s, when the server says %d: want exit code %d, have %d: %s", line, status, want, code, out.String())
			}
		}
	}
}

// TestEveryFlagSaysWhatItTakes sets each flag of each command to a value that it cannot have.
func TestEveryFlagSaysWhatItTakes(t *testing.T) {
	t.Parallel()
	asked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.InheritedFlags() // merges them into those of c
		c.Flags().VisitAll(func(f *pflag.Flag) {
			err := c.ParseFlags([]string{"--" + f.Name + "=perhaps"})
			if err == nil {
				return // any text will do here, or the command looks at it
			}
			asked++
			have := c.FlagErrorFunc()(c, err).Error()
			if !strings.HasPrefix(have, "--"+f.Name+` "perhaps": want `) {
				t.Errorf("%s: want what the flag takes, have %s", c.CommandPath(), have)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	if asked < 20 {
		t.Errorf("only %d flags refused the value", asked)
	}
	var out bytes.Buffer
	code := Main(t.Context(), []string{"demo", "--orders", "abc"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if want := "procaas: --orders \"abc\": want a whole number\nSee procaas --help.\n"; code != cli.ExitUsage || out.String() != want {
		t.Errorf("have exit code %d and %s, want %d and %s", code, out.String(), cli.ExitUsage, want)
	}
}
