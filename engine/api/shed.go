package api

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"procaas/engine"
)

// maxBodies bounds the bodies of all requests under way together, in bytes of
// their announced lengths: what clients send must fit into memory, however many
// they are.
const maxBodies = 64 << 20

// boundBodies refuses requests whose bodies would not fit.
func (s *server) boundBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := r.ContentLength
		if n <= 0 || n > s.maxBody { // which is refused by whoever reads it
			next.ServeHTTP(w, r)
			return
		}
		defer s.bodies.Add(-n)
		if s.bodies.Add(n) > max(maxBodies, s.maxBody) {
			w.Header().Set("Connection", "close")
			s.refuse(w, r, refuse(codeOverloaded, "requests under way hold all the memory that there is for bodies; nothing of this one was read, so send it again later").
				with("Retry-After", "1"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayTakeIn refuses events before they are read when even one would have to wait
// for too long.
func (s *server) mayTakeIn() error {
	if over := s.engine.Overload(); over != nil {
		return over
	}
	return nil
}

// overloaded says that events cannot be taken in at present.
func overloaded(over *engine.OverloadError) *Problem {
	return refuse(codeOverloaded, "%s; nothing of this request was accepted, so send it again later", over).
		with("Retry-After", strconv.Itoa(max(1, int(math.Ceil(float64(over.After)/float64(time.Second))))))
}
