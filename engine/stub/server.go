package stub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"procaas/dsl/datum"
	"procaas/engine"
)

// A Server runs the stub services of a spec. Its methods are safe for
// concurrent use.
type Server struct {
	services  []*service
	incidents map[string][]*incident
	journal   *journal

	stop    func() bool // stops watching Start's context
	serving sync.WaitGroup
}

// Options configures a server.
type Options struct {
	// FreePorts uses a free port for every service, whatever the spec says, so that several servers
	// of one spec can run.
	FreePorts bool

	// Yield uses a free port for a service whose address is in use.
	Yield bool
}

// Start serves the services until ctx ends or Close is called. The error says which service cannot
// listen. Then none is served.
func Start(ctx context.Context, spec *Spec, o Options) (*Server, error) {
	s := &Server{incidents: make(map[string][]*incident), journal: newJournal()}
	for i, declared := range spec.Services {
		svc, err := newService(s, declared, mix(uint64(spec.Seed), i))
		if err == nil {
			err = svc.listen(o)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("stub service %s: %w", declared.ID, err), s.Close())
		}
		s.services = append(s.services, svc)
		for _, in := range svc.incidents {
			s.incidents[in.spec.ID] = append(s.incidents[in.spec.ID], in)
		}
		s.serving.Go(svc.serve)
	}
	s.stop = context.AfterFunc(ctx, func() { s.Close() })
	return s, nil
}

// Close disconnects all callers and waits until the services have ended.
func (s *Server) Close() error {
	if s.stop != nil {
		s.stop()
	}
	var errs []error
	for _, svc := range s.services {
		errs = append(errs, svc.http.Close())
		for _, r := range svc.routes {
			if r.crowd != nil {
				r.crowd.close()
			}
		}
	}
	s.serving.Wait()
	return errors.Join(errs...)
}

// URLs returns the addresses of the services by id.
func (s *Server) URLs() map[string]string {
	urls := make(map[string]string, len(s.services))
	for _, svc := range s.services {
		urls[svc.spec.ID] = "http://" + svc.listener.Addr().String()
	}
	return urls
}

// Incidents lists the ids of all incidents, sorted.
func (s *Server) Incidents() []string { return slices.Sorted(maps.Keys(s.incidents)) }

// SetIncident switches an incident on or off. The error says that there is no such incident.
func (s *Server) SetIncident(id string, on bool) error {
	found, ok := s.incidents[id]
	if !ok {
		return fmt.Errorf("no stub service has an incident %q", id)
	}
	for _, in := range found {
		in.on.Store(on)
	}
	return nil
}

// Record returns everything that the services remember.
func (s *Server) Record() Record { return s.journal.record() }

// A service is one running stub service.
type service struct {
	server    *Server
	spec      *Service
	listener  net.Listener
	http      *http.Server
	routes    []*route
	incidents []*incident
}

func newService(s *Server, spec *Service, seed uint64) (*service, error) {
	svc := &service{server: s, spec: spec}
	for i, declared := range spec.Routes {
		r, err := newRoute(declared, mix(seed, i))
		if err != nil {
			return nil, err
		}
		svc.routes = append(svc.routes, r)
	}
	for _, declared := range spec.Incidents {
		svc.incidents = append(svc.incidents, &incident{spec: declared})
	}
	svc.http = &http.Server{
		Handler: svc, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
	}
	return svc, nil
}

func (svc *service) listen(o Options) (err error) {
	address := svc.spec.Listen
	if o.FreePorts {
		address = "127.0.0.1:0"
	}
	svc.listener, err = net.Listen("tcp", address)
	if err != nil && o.Yield {
		svc.listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	return err
}

// serve serves until the server is closed.
func (svc *service) serve() {
	// The only other error is a broken listener, which callers notice.
	_ = svc.http.Serve(svc.listener)
}

// ServeHTTP implements [http.Handler].
func (svc *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/__stub/calls" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(svc.server.journal.record()) // the caller may be gone
		return
	}
	call := Call{
		Service: svc.spec.ID, Method: r.Method, Path: r.URL.Path, Time: time.Now(),
		Key: r.Header.Get("Idempotency-Key"), Handler: r.Header.Get("X-Procaas-Path"),
		Run: r.Header.Get("X-Procaas-Run"), Attempt: r.Header.Get("X-Procaas-Attempt"),
	}
	a := svc.answer(r)
	if a.crowd != nil {
		a.crowd.wait(r.Context(), a.latency, a.status == hangUp)
	} else {
		wait(r.Context(), a.latency)
	}
	call.Status = a.status
	svc.server.journal.add(call)
	if a.status == hangUp {
		panic(http.ErrAbortHandler) // the documented way to close without a reply
	}
	a.write(w)
}

// wait waits for the latency of an answer. If the caller gives up, the service still does its work.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// answer asks the first matching route.
func (svc *service) answer(r *http.Request) answer {
	request, err := engine.RequestData(r)
	if err != nil {
		return problem(http.StatusBadRequest, err)
	}
	for _, route := range svc.routes {
		params, ok := route.match(r.Method, r.URL.EscapedPath())
		if !ok {
			continue
		}
		request["params"] = params
		a, err := route.answer(request, svc.incident(route))
		if errors.Is(err, errNoMatch) {
			continue
		}
		if err != nil {
			return problem(http.StatusInternalServerError, err)
		}
		return a
	}
	return problem(http.StatusNotFound, fmt.Errorf("stub service %s has no route for %s %s", svc.spec.ID, r.Method, r.URL.Path))
}

// incident returns what is wrong with a route now, or nil.
func (svc *service) incident(r *route) *Incident {
	at := slices.IndexFunc(svc.incidents, func(in *incident) bool {
		return in.on.Load() && (in.spec.Route == "" || in.spec.Route == r.spec.Path)
	})
	if at < 0 {
		return nil
	}
	return svc.incidents[at].spec
}

func problem(status int, err error) answer {
	data, _ := datum.FormatJSON(map[string]any{"error": err.Error()})
	return answer{status: status, contentType: "application/json", body: data}
}
