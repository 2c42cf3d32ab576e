package api

import "net/http"

// Lobby answers while a node waits for its store: the process is alive, and not
// ready. Programs are told to come again.
func Lobby(version string) http.Handler {
	const why = "the node waits for its store, which cannot be reached; its log tells why"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			_ = writeJSON(w, http.StatusOK, Health{Status: "ok", Version: version}) // it never fails
			return
		}
		code := codeStoreUnavailable
		if r.URL.Path == "/readyz" {
			code = codeNotReady
		}
		p := refuse(code, why).with("Retry-After", "1")
		w.Header()["Retry-After"] = p.header["Retry-After"]
		writeAs(w, p.Status, mediaProblem, p)
	})
}
