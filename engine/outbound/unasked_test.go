package outbound

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"procaas/dsl/tree"
)

func (s *scriptedService) host() string { return strings.TrimPrefix(s.url, "http://") }

// What is not the response to a request is never taken for one.
func TestTransportTakesNoResponseThatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for name, c := range map[string]struct {
		script func(e *exchange, read <-chan struct{})
		loose  bool
	}{
		"with the response": {loose: true, script: func(e *exchange, _ <-chan struct{}) { e.say(ok + poison) }},
		"behind it": {loose: true, script: func(e *exchange, read <-chan struct{}) {
			e.say(ok)
			<-read
			e.say(poison)
		}},
		"a farewell with the response": {script: func(e *exchange, _ <-chan struct{}) {
			e.say(ok + "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}},
		"a farewell": {script: func(e *exchange, read <-chan struct{}) {
			e.say(ok)
			<-read
			e.say("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, told := make(chan struct{}), make(chan struct{})
			s := startScripted(t, func(e *exchange) {
				if e.next() == nil {
					return
				}
				if e.number > 1 {
					e.say(ok)
					e.next()
					return
				}
				c.script(e, read)
				close(told)
				e.next() // the client's end
			})
			rt := transportFor(t)
			if got, err := said(rt, post(t.Context(), t, s.url, "{}")); err != nil || got != "200 ok" {
				t.Fatalf("have %q, %v", got, err)
			}
			close(read)
			<-told
			if got, err := said(rt, post(t.Context(), t, s.url, "{}")); err != nil || got != "200 ok" {
				t.Fatalf("have %q, %v", got, err)
			}
			if loose := rt.isLoose(s.host()); loose != c.loose {
				t.Errorf("want the service found out: %v, have %v", c.loose, loose)
			}
			if n := s.connections.Load(); n != 2 {
				t.Errorf("want a new connection, have %d", n)
			}
		})
	}
}

// Events may name any number of hosts, so their names must not fill the memory of a node.
func TestTransportRemembersABoundedNumberOfHosts(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	rt := transportFor(t)
	rt.log = slog.New(slog.NewTextHandler(&told, nil))
	for i := range mostLoose - 1 {
		rt.distrust(fmt.Sprintf("h%d.test:80", i))
	}
	if rt.isLoose("other.test:80") || !rt.isLoose("h0.test:80") {
		t.Error("want only the hosts distrusted that have sent responses")
	}
	for i := range 3 {
		rt.distrust(fmt.Sprintf("more%d.test:80", i))
	}
	if !rt.isLoose("other.test:80") || len(rt.loose) != mostLoose {
		t.Errorf("want every host distrusted and %d remembered, have %d", mostLoose, len(rt.loose))
	}
	if n := strings.Count(told.String(), "too many services"); n != 1 {
		t.Errorf("want one warning about all services, have %d", n)
	}
}

// echoTwice answers with what was asked, twice in one go.
func echoTwice(e *exchange) {
	for r := e.next(); r != nil; r = e.next() {
		body, _ := io.ReadAll(r.Body)
		said := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		e.say(said + said)
	}
}

// TestResponsesThatWereThereBeforeAreNoneTaken has many wait for one connection, so that each gets it at the very
// moment at which the second response of the one before is left over on it.
func TestResponsesThatWereThereBeforeAreNoneTaken(t *testing.T) {
	t.Parallel()
	s, rt := startScripted(t, echoTwice), transportFor(t)
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 50 {
				body := fmt.Sprint("run-", i, "-", n)
				if got, err := said(rt, post(t.Context(), t, s.url, body)); err != nil || got != "200 "+body {
					t.Errorf("want the response to %s, have %q, %v", body, got, err)
				}
			}
		})
	}
	callers.Wait()
}

// TestLateResponsesReachOneRunAtMost has a service that sends a second response to a request only
// when the next request has come, which no client can tell from its response.
func TestLateResponsesReachOneRunAtMost(t *testing.T) {
	t.Parallel()
	told := make(chan struct{}, 25)
	s := startScripted(t, func(e *exchange) {
		late := ""
		for r := e.next(); r != nil; r = e.next() {
			body, _ := io.ReadAll(r.Body)
			e.say(late)
			late = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			e.say(late)
			told <- struct{}{}
		}
	})
	call := func(rt *transport, i int) (wrong int) {
		body := fmt.Sprintf("run-%d", i)
		if got, err := said(rt, post(t.Context(), t, s.url, body)); err != nil || got != "200 "+body {
			return 1
		}
		return 0
	}
	rt, wrong := transportFor(t), 0
	for i := range 20 {
		wrong += call(rt, i)
		<-told // what comes late has come
	}
	if connections := s.connections.Load(); wrong > 1 || connections < 18 {
		t.Errorf("have %d wrong responses on %d connections, want one at most, and then a connection for each call", wrong, connections)
	}
	fresh := ForServices(&tree.Bundle{Services: []*tree.Service{{ID: "s", URL: s.url}}}, 4, nil, nil).Transport.(*transport)
	for i := range 5 {
		if call(fresh, i) > 0 {
			t.Error("have a wrong response of a service with keep-alive: false")
		}
	}
	if connections := s.connections.Load(); connections < 23 {
		t.Errorf("have %d connections, want one for each call", connections)
	}
}
