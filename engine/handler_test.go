package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/model"
)

func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{context.DeadlineExceeded, "timeout"},
		{fmt.Errorf("call: %w", context.DeadlineExceeded), "timeout"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timeout"},
		{&net.DNSError{Name: "x", IsTimeout: true}, "timeout"},
		{refused, "connection"},
		{&url.Error{Op: "Get", URL: "http://x", Err: refused}, "connection"},
		{&net.DNSError{Name: "x", IsNotFound: true}, "connection"},
		{&url.Error{Op: "Get", URL: "http://x", Err: io.EOF}, "connection"},
		{syscall.ECONNRESET, "connection"},
		{&url.Error{Op: "Get", URL: "gopher://x", Err: errors.New("unsupported protocol scheme")}, "other"},
		{&model.StatusError{Status: 503}, "503"},
		{model.After(time.Second, &model.StatusError{Status: 429}), "429"},
		{errors.New("no"), "other"},
		{context.Canceled, "other"},
	} {
		if have := model.ClassOf(engine.Classify(c.err)); have != c.want {
			t.Errorf("%v: have %s, want %s", c.err, have, c.want)
		}
	}
}

func TestInClass(t *testing.T) {
	t.Parallel()
	status := func(n int) error { return &model.StatusError{Status: n} }
	for _, c := range []struct {
		err     error
		classes []string
		want    bool
	}{
		{status(503), []string{"5xx"}, true},
		{status(503), []string{"503"}, true},
		{status(503), []string{"4xx", "500"}, false},
		{status(404), []string{"4xx"}, true},
		{status(404), []string{"any"}, true},
		{context.DeadlineExceeded, []string{"timeout"}, true},
		{context.DeadlineExceeded, []string{"connection", "other"}, false},
		{errors.New("no"), []string{"other"}, true},
		{errors.New("no"), nil, false},
	} {
		if have := model.InClass(c.err, c.classes); have != c.want {
			t.Errorf("%v in %v: have %v, want %v", c.err, c.classes, have, c.want)
		}
	}
}

func TestStatusErrorReadsAsASentence(t *testing.T) {
	t.Parallel()
	err := &model.StatusError{Status: 503, Method: "POST", URL: "http://db/x", Excerpt: "busy"}
	if have, want := err.Error(), "503 from POST http://db/x: busy"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

func TestPermanentAndAfterKeepTheirError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	if err := fmt.Errorf("x: %w", model.Permanent(cause)); !model.IsPermanent(err) || !errors.Is(err, cause) {
		t.Errorf("have %v, want a permanent error that is its cause", err)
	}
	err := fmt.Errorf("x: %w", model.After(time.Minute, cause))
	if d, ok := model.RetryDelay(err); !ok || d != time.Minute || !errors.Is(err, cause) {
		t.Errorf("have %v %v, want 1m of an error that is its cause", d, ok)
	}
	if _, ok := model.RetryDelay(cause); ok || model.IsPermanent(cause) {
		t.Error("a plain error is neither permanent nor delayed")
	}
}
