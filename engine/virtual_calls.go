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
	"procaas/engine/model"
)

// This file answers calls in virtual time, for pipelines that run without a network.

// forever is longer than any call.
const forever = 366 * 24 * time.Hour

// FailAs returns the error of a call that fails without a reply. The kind timeout waits until the
// call times out. connection is a refused connection. credentials is a call that has none, and certificate is a service
// that cannot be trusted. Any other text becomes the error's text.
func FailAs(ctx context.Context, kind string) error {
	switch kind {
	case "timeout":
		if err := clock.Sleep(ctx, forever); err != nil {
			return err
		}
		return context.DeadlineExceeded
	case "connection":
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case model.ClassCredentials:
		return model.WithClass(kind, errors.New("there are no credentials for the service"))
	case model.ClassCertificate:
		return model.WithClass(kind, errors.New("the certificate of the service cannot be trusted"))
	}
	return errors.New(kind)
}

// Stubs answer requests without a network.
type Stubs interface {
	// Answer returns the reply of a service, which is named by its id or by the address of the
	// request, and how long the reply takes. A nil reply means that the service hangs up. ok is
	// false when there is no such service.
	Answer(service string, r *http.Request) (reply *http.Response, after time.Duration, ok bool)
}

// Ask lets a stub service answer a request, and lets the time of the answer pass. ok is false when
// there is no such service. Stubs may be nil.
func Ask(ctx context.Context, stubs Stubs, b *tree.Bundle, r *http.Request) (reply *http.Response, ok bool, err error) {
	if stubs == nil {
		return nil, false, nil
	}
	service := "" // id of a declared service
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
