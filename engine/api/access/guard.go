package access

import (
	"errors"
	"net/http"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/credentials"
)

// proxyAuthorization has the token of a [Guard], because the header Authorization belongs to the
// receiver of the request.
const proxyAuthorization = "Proxy-Authorization"

// Guard protects a handler that is not part of the API. Once there is a token, each request needs
// an unrestricted one of a submitter in the header Proxy-Authorization.
func Guard(o Options, next http.Handler) http.Handler {
	d := New(o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := d.letThrough(r); err != nil {
			d.Refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (d *Checker) letThrough(r *http.Request) error {
	asked := r.WithContext(r.Context())
	asked.Header = http.Header{}
	if token := r.Header.Get(proxyAuthorization); token != "" {
		asked.Header.Set("Authorization", token)
	}
	_, err := d.Admit(asked, rest.Need{Role: credentials.RoleSubmitter, Everywhere: true})
	var p *problem.Problem
	if errors.As(err, &p) && p.Status == http.StatusUnauthorized {
		p = problem.New(problem.Unauthorized, "the proxy needs the header %s: Bearer TOKEN, with the token of a submitter", proxyAuthorization).
			With("Proxy-Authenticate", `Bearer realm="procaas"`)
		p.Status = http.StatusProxyAuthRequired
		return p
	}
	return err
}
