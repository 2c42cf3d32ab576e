package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// A Health says that a process is alive or ready.
type Health struct {
	Status  string `json:"status" enum:"ok,ready" doc:"ok: the process is alive; ready: it takes events and runs them."`
	Version string `json:"version" doc:"The version of the program."`

	Degraded string `json:"degraded,omitempty" doc:"What does not work although the node does, for people."`
}

// getHealth asks nothing of the engine: a node whose store is away is alive, and starting it
// anew would not help.
func (s *server) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, Health{Status: "ok", Version: s.version})
}

// getReady tells whether requests should come here. What only degrades the node is told, and
// keeps none away: it would be the same on the others.
func (s *server) getReady(w http.ResponseWriter, r *http.Request) error {
	if err := s.engine.Healthy(r.Context()); err != nil {
		return refuse(codeNotReady, "%s", err).with("Retry-After", "1")
	}
	h := Health{Status: "ready", Version: s.version}
	if err := s.engine.Degraded(); err != nil {
		h.Degraded = err.Error()
	}
	return writeJSON(w, http.StatusOK, h)
}

// metricsHandler shows the metrics. An error of one collector does not hide the
// others.
func (s *server) metricsHandler() func(http.ResponseWriter, *http.Request) error {
	h := promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
	})
	return func(w http.ResponseWriter, r *http.Request) error {
		seen := &statusWriter{ResponseWriter: w}
		if h.ServeHTTP(seen, r); !seen.wrote {
			w.WriteHeader(http.StatusOK) // there are no metrics
		}
		return nil
	}
}

func (s *server) getDescription(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Access-Control-Allow-Origin", "*") // it is the same for everyone, and no secret
	writeAs(w, http.StatusOK, "application/json", s.doc)
	return nil
}
