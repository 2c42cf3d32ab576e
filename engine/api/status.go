package api

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/transport"
	"procaas/engine/api/wire"
)

// Health reports whether the node can work.
type Health interface {
	// Healthy returns why the node cannot work and must get no requests, or nil. Degraded returns
	// what does not work although the node can.
	Healthy(ctx context.Context) error
	Degraded() error
}

func (s *server) statusOperations() []rest.Operation {
	health := func(about string) []rest.Reply { return []rest.Reply{{About: about, Body: wire.Health{}}} }
	return []rest.Operation{
		{
			Method: http.MethodGet, Path: "/healthz", ID: "health", Tag: "status", Summary: "Check that the process is alive",
			Replies: health("The process is alive."), Serve: s.getHealth,
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Tag: "status", Summary: "Check that the node accepts and runs events",
			Replies: health("The node is ready."), Refusals: []string{problem.NotReady}, Serve: s.getReady,
		},
		{
			Method: http.MethodGet, Path: "/metrics", ID: "metrics", Tag: "status", Summary: "Metrics in the text format of Prometheus",
			Replies: []rest.Reply{{About: "The metrics.", ContentType: "text/plain"}}, Serve: s.metricsHandler(),
		},
		{
			Method: http.MethodGet, Path: "/openapi.json", ID: "describe", Tag: "status", Summary: "Read this description",
			Replies: []rest.Reply{{About: "An OpenAPI 3.1 document.", Body: map[string]any{}}}, Serve: s.getDescription,
		},
		{
			Method: http.MethodGet, Path: "/", ID: "page", Tag: "status", Summary: "Show the console, for people",
			Replies: []rest.Reply{{
				About:       "The overview. The server redirects people who must sign in to that page.",
				ContentType: "text/html",
			}}, Serve: func(c *rest.Call) error { return s.serveConsole(c.W, c.R) },
		},
	}
}

// getHealth does not ask the engine. A node without its store is alive, and a restart would not
// help.
func (s *server) getHealth(c *rest.Call) error {
	return c.Reply(http.StatusOK, wire.Health{Status: "ok", Version: s.Version})
}

// getReady reports whether the node should get requests. A degraded node still should, because
// others would be no better.
func (s *server) getReady(c *rest.Call) error {
	if err := s.healthy(c.Context()); err != nil {
		return problem.New(problem.NotReady, "%s", err).With("Retry-After", "1")
	}
	h := wire.Health{Status: "ready", Version: s.Version}
	if err := s.Engine.Health.Degraded(); err != nil {
		h.Degraded = err.Error()
	}
	return c.Reply(http.StatusOK, h)
}

// metricsHandler serves the metrics. An error of one collector does not hide the others.
func (s *server) metricsHandler() func(*rest.Call) error {
	h := promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, DisableCompression: true,
	})
	return func(c *rest.Call) error {
		w, done := rest.Compress(c.W, c.R)
		defer done()
		seen := &transport.StatusWriter{ResponseWriter: w}
		if h.ServeHTTP(seen, c.R); !seen.Wrote {
			w.WriteHeader(http.StatusOK) // there are no metrics
		}
		return nil
	}
}

func (s *server) getDescription(c *rest.Call) error {
	c.W.Header().Set("Access-Control-Allow-Origin", "*") // it is the same for all callers, and not secret
	return c.Reply(http.StatusOK, s.doc.OpenAPI)
}
