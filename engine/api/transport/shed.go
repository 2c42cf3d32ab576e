package transport

import (
	"net/http"

	"procaas/engine/api/problem"
)

// maxBodies bounds the bodies of all requests in flight together, by their announced lengths in
// bytes. They must fit into memory, however many clients there are.
const maxBodies = 64 << 20

// boundBodies refuses requests whose bodies would not fit.
func (f *Middleware) boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n <= 0 || n > f.MaxBody { // refused when it is read
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
