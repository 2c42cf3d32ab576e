package transport

import (
	"net/http"

	"procaas/engine/api/problem"
)

// maxBodies bounds the bodies of all requests under way together, in bytes of
// their announced lengths: what clients send must fit into memory, however many
// they are.
const maxBodies = 64 << 20

// boundBodies refuses requests whose bodies would not fit.
func (f *Middleware) boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n <= 0 || n > f.MaxBody { // which is refused by whoever reads it
			next.ServeHTTP(w, r)
			return
		}
		defer f.bodies.Add(-n)
		if f.bodies.Add(n) > max(maxBodies, f.MaxBody) {
			w.Header().Set("Connection", "close")
			f.Access.Refuse(w, r, problem.New(problem.Overloaded, "requests under way hold all the memory that there is for bodies; nothing of "+
				"this one was read, so send it again later").
				With("Retry-After", "1"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
