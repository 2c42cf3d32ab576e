package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/transport"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
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
			Method: http.MethodGet, Path: "/healthz", ID: "health", Need: rest.Anybody, Tag: "status",
			Summary: "Check that the process is alive",
			Replies: health("The process is alive."), Serve: s.getHealth,
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Need: rest.Anybody, Tag: "status",
			Summary: "Check that the node accepts and runs events",
			Replies: health("The node is ready."), Refusals: []string{problem.NotReady}, Serve: s.getReady,
		},
		{
			Method: http.MethodGet, Path: "/metrics", ID: "metrics", Need: rest.Scrapes, Tag: "status",
			Summary: "Metrics in the text format of Prometheus",
			Replies: []rest.Reply{{About: "The metrics.", ContentType: "text/plain"}}, Serve: s.metricsHandler(),
		},
		{
			Method: http.MethodGet, Path: "/openapi.json", ID: "describe", Need: rest.Anybody, Tag: "status",
			Summary: "Read this description",
			Replies: []rest.Reply{{About: "An OpenAPI 3.1 document.", Body: map[string]any{}}}, Serve: s.getDescription,
		},
		{
			Method: http.MethodGet, Path: "/", ID: "page", Need: rest.Anybody, Tag: "status", Summary: "Show the console, for people",
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
	o := promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, DisableCompression: true, EnableOpenMetrics: true}
	whole := promhttp.HandlerFor(s.Registry, o)
	return func(c *rest.Call) error {
		h := whole
		if g := rest.Granted(c.R); g.Bound() {
			h = promhttp.HandlerFor(scopedMetrics{s.Registry, g}, o)
		}
		w, done := rest.Compress(c.W, c.R)
		defer done()
		seen := &transport.StatusWriter{ResponseWriter: w}
		if h.ServeHTTP(seen, c.R); !seen.Wrote {
			w.WriteHeader(http.StatusOK) // there are no metrics
		}
		return nil
	}
}

// scopedMetrics has the metrics that a grant may read: those of its pipelines and types of tasks, and
// those that name neither.
type scopedMetrics struct {
	prometheus.Gatherer

	g credentials.Grant
}

// Gather implements [prometheus.Gatherer].
func (s scopedMetrics) Gather() ([]*dto.MetricFamily, error) {
	all, err := s.Gatherer.Gather()
	found := make([]*dto.MetricFamily, 0, len(all))
	for _, f := range all {
		kept := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}
		for _, m := range f.GetMetric() {
			if s.reads(m) {
				kept.Metric = append(kept.Metric, m)
			}
		}
		if len(kept.GetMetric()) > 0 {
			found = append(found, kept)
		}
	}
	return found, err
}

// reads reports whether the grant may read a metric.
func (s scopedMetrics) reads(m *dto.Metric) bool {
	for _, l := range m.GetLabel() {
		switch l.GetName() {
		case "pipeline", "type":
			if !s.g.Reads(l.GetValue()) {
				return false
			}
		case "token":
			if l.GetValue() != s.g.Name {
				return false
			}
		}
	}
	return true
}

// A description is the encoded description of the API. It is made once, since anybody may ask for it.
type description struct {
	plain, zipped []byte
	tag           string
}

// describe encodes the description.
func (s *server) describe() *description {
	var plain, zipped bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s.doc.OpenAPI); err != nil {
		panic(fmt.Errorf("encode the description: %w", err))
	}
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain.Bytes()) // into memory
	_ = w.Close()
	return &description{plain.Bytes(), zipped.Bytes(), fmt.Sprintf(`"%x"`, sha256.Sum256(plain.Bytes()))}
}

func (s *server) getDescription(c *rest.Call) error {
	d := s.described()
	h := c.W.Header()
	h.Set("Access-Control-Allow-Origin", "*") // it is the same for all callers, and not secret
	h.Set("ETag", d.tag)
	h.Set("Vary", "Accept-Encoding")
	if slices.Contains(strings.Split(strings.ReplaceAll(c.R.Header.Get("If-None-Match"), " ", ""), ","), d.tag) {
		c.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := d.plain
	if rest.AcceptsGzip(c.R) {
		body = d.zipped
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", rest.MediaJSON)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.W.WriteHeader(http.StatusOK)
	_, _ = c.W.Write(body) // the client may have left
	return nil
}
