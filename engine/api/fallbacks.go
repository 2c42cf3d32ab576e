package api

import (
	"context"
	"net/http"

	"procaas/engine"
)

// Fallbacks puts handlers back into the flow that have gone out of it by
// themselves.
type Fallbacks interface {
	EndFallbacks(ctx context.Context, path string, by engine.Actor) ([]string, error)
}

// A FallbackEnd says which handlers go back into the flow.
type FallbackEnd struct {
	Path   string `json:"path" maxLength:"256" doc:"A pipeline, stage or handler."`
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"Why, for people and the audit."`
}

// FallbacksEnded tells which handlers are back in the flow.
type FallbacksEnded struct {
	Path     string   `json:"path"`
	Handlers []string `json:"handlers" doc:"Those that were out; empty when none was."`
}

func (s *server) fallbackOperations() []operation {
	return []operation{{
		method: http.MethodPost, path: "/admin/v1/fallbacks/end", id: "end-fallbacks", tag: "admin",
		summary: "Put handlers back into the flow that have gone out of it by themselves",
		about: "All calls of the handlers below the path are made again, on all nodes within a second. They go out again when " +
			"their calls fail from now on; a control with the mode keep forbids that.",
		body:     jsonBody(s.schema(FallbackEnd{}), FallbackEnd{Path: "new-order-created/notify", Reason: "push is back"}),
		replies:  []reply{{status: 200, about: "They are back.", body: FallbacksEnded{}}},
		refusals: []string{codeControlPath, codeStoreUnavailable}, serve: s.endFallbacks,
	}}
}

func (s *server) endFallbacks(w http.ResponseWriter, r *http.Request) error {
	f, err := s.readObject(w, r)
	if err != nil {
		return err
	}
	path, reason := f.label("path", maxName), f.label("reason", maxReason)
	if path == "" && len(f.faults) == 0 {
		f.fault("path", "want the path of a pipeline, stage or handler")
	}
	f.refuseUnknown()
	if err := faulty(f.faults); err != nil {
		return err
	}
	if err := mayAt(r, path); err != nil {
		return err
	}
	ended, err := s.engine.EndFallbacks(r.Context(), path, actor(r, reason))
	if err != nil {
		return controlProblem(err, path)
	}
	return writeJSON(w, http.StatusOK, FallbacksEnded{Path: path, Handlers: ended})
}

// EndFallbacks puts the handlers below a path back into the flow that are out of
// it by themselves, and lists them.
func (c *Client) EndFallbacks(ctx context.Context, path, reason string) ([]string, error) {
	var ended FallbacksEnded
	err := c.call(ctx, http.MethodPost, "/admin/v1/fallbacks/end", FallbackEnd{path, reason}, nil, &ended)
	return ended.Handlers, err
}
