package api

import (
	"errors"
	"net/http"

	"procaas/engine"
)

// proxyAuthorization carries the token of a [Guard]: the header Authorization belongs to
// whom the request is for.
const proxyAuthorization = "Proxy-Authorization"

// Guard lets requests through to a handler that is not a part of the API, by its rules: as
// soon as there is a token, each needs one of a submitter that holds everywhere, in the
// header Proxy-Authorization. Of the options, those of access count, and Engine and Log.
func Guard(o Options, next http.Handler) http.Handler {
	s := newDoor(o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.letThrough(r); err != nil {
			s.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) letThrough(r *http.Request) error {
	asked := r.WithContext(r.Context())
	asked.Header = http.Header{}
	if token := r.Header.Get(proxyAuthorization); token != "" {
		asked.Header.Set("Authorization", token)
	}
	_, err := s.admit(asked, need{role: engine.RoleSubmitter, everywhere: true})
	var p *Problem
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		p = refuse(codeUnauthorized, "the proxy needs the header %s: Bearer TOKEN, with the token of a submitter", proxyAuthorization).
			with("Proxy-Authenticate", `Bearer realm="procaas"`)
		p.Status = http.StatusProxyAuthRequired
		return p
	}
	return err
}
