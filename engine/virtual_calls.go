package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"procaas/dsl/tree"
	"procaas/engine/clock"
)

// This file answers calls in virtual time, for those who run pipelines without a network.

// forever is longer than any call.
const forever = 366 * 24 * time.Hour

// FailAs is how a call fails without a reply: timeout lets the time of the call pass, connection is a refused
// connection, and any other text an error that says so.
func FailAs(ctx context.Context, kind string) error {
	switch kind {
	case "timeout":
		if err := clock.Sleep(ctx, forever); err != nil {
			return err
		}
		return context.DeadlineExceeded
	case "connection":
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return errors.New(kind)
}

// Stubs answer requests without a network.
type Stubs interface {
	// Answer returns the answer of the service with an id, or with the address that
	// the request goes to, and the time that it takes. A nil reply is a service
	// that hangs up; ok is false when there is no such service.
	Answer(service string, r *http.Request) (reply *http.Response, after time.Duration, ok bool)
}

// Ask lets a stub service answer a request, and lets the time of that pass; ok is false when there is none. Stubs may be nil.
func Ask(ctx context.Context, stubs Stubs, b *tree.Bundle, r *http.Request) (reply *http.Response, ok bool, err error) {
	if stubs == nil {
		return nil, false, nil
	}
	service := "" // the id of the declared one
	for _, s := range b.Services {
		if known, err := url.Parse(s.Address()); err == nil && known.Host == r.URL.Host {
			service = s.ID
			break
		}
	}
	reply, after, ok := stubs.Answer(service, r)
	if !ok {
		return nil, false, nil
	}
	if err := clock.Sleep(ctx, after); err != nil {
		return nil, true, err
	}
	if reply == nil {
		return nil, true, io.EOF
	}
	return reply, true, nil
}
