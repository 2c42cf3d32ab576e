package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestExitCodeTellsWhetherToTryAgain holds what --help says of commands that call a server.
func TestExitCodeTellsWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{
		http.StatusBadRequest: exitUsage, http.StatusNotFound: exitUsage, http.StatusRequestEntityTooLarge: exitUsage,
		http.StatusUnprocessableEntity: exitUsage,
		http.StatusUnauthorized:        exitFindings, http.StatusForbidden: exitFindings, http.StatusConflict: exitFindings,
		http.StatusPreconditionFailed: exitFindings,
		http.StatusTooManyRequests:    exitBroken, http.StatusInternalServerError: exitBroken, http.StatusBadGateway: exitBroken,
		http.StatusServiceUnavailable: exitBroken,
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
			code := Main(t.Context(), append(strings.Fields(line), "--server", srv.URL), streams{strings.NewReader(""), &out, &out})
			if code != want || !strings.Contains(out.String(), "what is wrong") {
				t.Errorf("procaas %s, when the server says %d: want exit code %d, have %d: %s", line, status, want, code, out.String())
			}
		}
	}
}

func TestGraverErrorDecides(t *testing.T) {
	t.Parallel()
	fine, refused, broken := error(nil), errFindings, errors.New("no answer")
	for i, have := range []error{graver(fine, refused), graver(refused, fine), graver(broken, refused), graver(refused, broken)} {
		if want := []error{refused, refused, broken, broken}[i]; !errors.Is(have, want) {
			t.Errorf("pair %d: have %v, want %v", i, have, want)
		}
	}
}

// TestEveryFlagSaysWhatItTakes gives each flag of each command a value that it cannot have.
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
	walk(newRoot(streams{strings.NewReader(""), io.Discard, io.Discard}))
	if asked < 20 {
		t.Errorf("only %d flags refused the value", asked)
	}
	var out bytes.Buffer
	code := Main(t.Context(), []string{"demo", "--orders", "abc"}, streams{strings.NewReader(""), &out, &out})
	if want := "procaas: --orders \"abc\": want a whole number\nSee procaas --help.\n"; code != exitUsage || out.String() != want {
		t.Errorf("have exit code %d and %s, want %d and %s", code, out.String(), exitUsage, want)
	}
}
