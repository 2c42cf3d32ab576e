package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"procaas/engine/api/problem"
)

func TestGraverErrorDecides(t *testing.T) {
	t.Parallel()
	fine, refused, broken := error(nil), ErrFindings, errors.New("no answer")
	for i, have := range []error{Graver(fine, refused), Graver(refused, fine), Graver(broken, refused), Graver(refused, broken)} {
		if want := []error{refused, refused, broken, broken}[i]; !errors.Is(have, want) {
			t.Errorf("pair %d: have %v, want %v", i, have, want)
		}
	}
}

// A server that does not answer in time has a remedy, too.
func TestASilentServerHasARemedy(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	err := &url.Error{Op: "Get", URL: "http://127.0.0.1:1/v1/runs", Err: context.DeadlineExceeded}
	if code := End(Streams{Err: &errs}, err); code != ExitBroken || !strings.Contains(errs.String(), "name another node of the same store") {
		t.Errorf("want exit code %d and a remedy, have %d and %s", ExitBroken, code, errs.String())
	}
}

// An error of the server says what to do about it, as one of the caller does.
func TestAnErrorOfTheServerHasARemedy(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	err := fmt.Errorf("http://127.0.0.1:1: %w", &problem.Problem{Status: 503, Detail: "the store cannot be reached"})
	if code := End(Streams{Err: &errs}, err); code != ExitBroken {
		t.Errorf("want exit code %d, have %d", ExitBroken, code)
	}
	for _, want := range []string{"http://127.0.0.1:1: the store cannot be reached", "another node of the same store with --server"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("want %q, have %s", want, errs.String())
		}
	}
}
