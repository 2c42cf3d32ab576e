package api

import (
	"github.com/go-chi/chi/v5"

	"procaas/engine/api/rest"
)

// Inside shows what a server is made of.
func Inside(o Options) (*chi.Mux, *rest.Document, []rest.Operation) {
	s := newServer(o)
	return s.router, s.doc, s.operations()
}
