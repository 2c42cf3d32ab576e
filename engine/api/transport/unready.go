package transport

import (
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
)

// Unready answers while a node waits for its store: the process is alive but not ready. Programs
// should retry.
func Unready(version string) http.Handler {
	const why = "the node waits for its store, which cannot be reached; its log tells why"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			rest.WriteAs(w, http.StatusOK, rest.MediaJSON, wire.Health{Status: "ok", Version: version})
			return
		}
		code := problem.StoreUnavailable
		if r.URL.Path == "/readyz" {
			code = problem.NotReady
		}
		p := problem.New(code, why).With("Retry-After", "1")
		w.Header()["Retry-After"] = p.Header["Retry-After"]
		rest.WriteAs(w, p.Status, rest.MediaProblem, p)
	})
}
