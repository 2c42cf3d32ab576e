package rest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"procaas/engine/api/rest"
	"procaas/engine/credentials"
)

// Checking the token of somebody else must not change who the caller is.
func TestAGrantIsThatOfOneRequest(t *testing.T) {
	t.Parallel()
	work, r := rest.Begin(httptest.NewRequest(http.MethodGet, "/", nil), 0, nil)
	defer work.End()
	ann, bob := credentials.Grant{Name: "ann"}, credentials.Grant{Name: "bob"}
	if in := rest.WithGrant(r.Clone(r.Context()), bob); rest.Granted(in).Name != "bob" || rest.Granted(r).Name != "" {
		t.Errorf("have %q for a copy, and %q for the request", rest.Granted(in).Name, rest.Granted(r).Name)
	}
	in := rest.WithGrant(r, ann)
	below := in.WithContext(context.WithoutCancel(in.Context()))
	if again := rest.WithGrant(in, bob); rest.Granted(again).Name != "bob" || rest.Granted(in).Name != "ann" || rest.Granted(below).Name != "ann" {
		t.Errorf("have %q for a second grant, %q for the first, and %q below it", rest.Granted(again).Name, rest.Granted(in).Name,
			rest.Granted(below).Name)
	}
}

// The context of a request ends after its time, and so do contexts below it.
func TestWorkEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		work, r := rest.Begin(httptest.NewRequest(http.MethodGet, "/", nil), time.Second, nil)
		below, cancel := context.WithCancel(r.Context())
		defer cancel()
		began := time.Now()
		<-below.Done()
		if took := time.Since(began); took != time.Second || r.Context().Err() != context.DeadlineExceeded {
			t.Errorf("have the end after %s, with %v", took, r.Context().Err())
		}
		work.End()
		ended, r := rest.Begin(httptest.NewRequest(http.MethodGet, "/", nil), time.Second, nil)
		ended.End()
		if r.Context().Err() != context.Canceled {
			t.Errorf("have %v behind the end, want %v", r.Context().Err(), context.Canceled)
		}
	})
}
