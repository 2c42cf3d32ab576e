// Package access decides who may make which call. Until a token is configured or made, everybody
// may make all calls.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"procaas/dsl/urls"
	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/credentials"
	"procaas/engine/store"
)

// Access identifies callers.
type Access interface {
	Guarded(ctx context.Context) (bool, error)
	GrantOf(ctx context.Context, token [sha256.Size]byte) (credentials.Grant, error)
	GrantOfCertificate(ctx context.Context, names []string) (credentials.Grant, error)
	OpenSession(ctx context.Context, name string, token [sha256.Size]byte) (string, error)
	OpenSessionOf(ctx context.Context, who credentials.Identity) (string, error)
	SignedIn(ctx context.Context, session string) (credentials.Session, error)
	CloseSession(ctx context.Context, session string) error
	AuditRefusal(ctx context.Context, by store.Actor, call, detail string) error
}

// A Checker identifies callers, and admits those with permission.
type Checker struct {
	access Access
	others Identifier // nil for none
	log    *slog.Logger
	token  *[sha256.Size]byte // of an admin; nil for none
	open   []string
	local  bool
	hosts  []string

	failures Failures
	notes    notes
}

// Options configures who may call the API.
type Options struct {
	Access Access
	Log    *slog.Logger

	// Others identifies callers without a token of the server. Nil for none. With it, no caller is an admin without a token.
	Others Identifier

	// Token is that of an admin, in the form of [credentials.HashToken]. Empty for none.
	Token string
	Open  []string // groups of calls that never need a token; see [rest.OpenGroups]

	// Local says that only this machine reaches the server. Callers without a token must then call
	// it localhost, a loopback address or one of Hosts. A page of another site whose name resolves
	// to this machine uses that site's name.
	Local bool
	Hosts []string
}

// New makes a checker. It panics if [credentials.HashToken] refuses Options.Token.
func New(o Options) *Checker {
	d := &Checker{access: o.Access, others: o.Others, log: o.Log, open: o.Open, local: o.Local}
	for _, h := range o.Hosts {
		d.hosts = append(d.hosts, strings.ToLower(h))
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if o.Token != "" {
		hash, err := credentials.HashToken(o.Token)
		if err != nil {
			panic(fmt.Errorf("the token of an admin: %w", err))
		}
		d.token = &hash
	}
	return d
}

// anonymous is the name of a caller that needs no token.
const anonymous = "anonymous"

// Admit returns a request with the grant of its caller, or refuses it.
func (d *Checker) Admit(r *http.Request, n rest.Need) (*http.Request, error) {
	if n.Anybody {
		return r, nil
	}
	g, err := d.grantFor(r, n)
	if err != nil {
		return r, err
	}
	return rest.WithGrant(r, g), nil
}

// grantFor returns the grant of a request's caller, or an error if it does not suffice.
func (d *Checker) grantFor(r *http.Request, n rest.Need) (credentials.Grant, error) {
	g, err := d.identify(r, n)
	if err != nil {
		return g, err
	}
	switch {
	case d.isOpen(n):
		g.Paths = nil // paths do not restrict what everybody may do
	case n.Deployer && g.Has(credentials.RoleDeployer):
	case !g.Has(n.Role), n.Everywhere && !g.Covers(""):
		return g, forbidden(g, n)
	}
	return g, nil
}

// identify returns the grant of a request's caller. A caller without a token is anonymous, and
// admitted where that is allowed. Even there, a wrong token is refused, so that its bearer notices
// before a call that needs it.
func (d *Checker) identify(r *http.Request, n rest.Need) (credentials.Grant, error) {
	if g, given, err := d.signedIn(r); given || err != nil {
		return g, err
	}
	token, given, err := bearer(r)
	if err != nil {
		return credentials.Grant{}, err
	}
	names := certificateNames(r)
	if !given && len(names) > 0 {
		g, err := d.access.GrantOfCertificate(r.Context(), names)
		if err == nil || !errors.Is(err, credentials.ErrUnknownToken) {
			return g, refusedCertificate(g, err)
		}
	}
	if !given && d.isOpen(n) {
		return credentials.Grant{Name: anonymous}, d.checkHost(r)
	}
	guarded, err := d.guarded(r.Context())
	switch {
	case err != nil:
		return credentials.Grant{}, err
	case !guarded:
		return credentials.Grant{Name: anonymous, Role: credentials.RoleAdmin}, d.checkHost(r)
	case !given && len(names) > 0:
		return credentials.Grant{}, problem.New(problem.Unauthorized, "no token is for a certificate with %s; an admin makes one by "+
			"procaas token new --certificate %s", strings.Join(names, ", "), names[0])
	case !given:
		return credentials.Grant{}, problem.New(problem.Unauthorized,
			"the call needs the header Authorization: Bearer TOKEN, with the token of %s",
			article(n.Role)).
			With("WWW-Authenticate", `Bearer realm="procaas"`)
	}
	return d.authenticate(r, token)
}

// certificateNames returns the names in the verified client certificate of a request, or none. A name says what kind it is, since
// not every issuer vouches for each kind.
func certificateNames(r *http.Request) (names []string) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	c := r.TLS.VerifiedChains[0][0]
	for _, u := range c.URIs {
		names = append(names, "URI:"+u.String())
	}
	for _, n := range c.DNSNames {
		names = append(names, "DNS:"+n)
	}
	for _, n := range c.EmailAddresses {
		names = append(names, "EMAIL:"+n)
	}
	if c.Subject.CommonName != "" {
		names = append(names, "CN:"+c.Subject.CommonName)
	}
	return names
}

// refusedCertificate converts an error about the token for a certificate.
func refusedCertificate(g credentials.Grant, err error) error {
	if !errors.Is(err, credentials.ErrTokenExpired) {
		return err
	}
	return by(g, problem.New(problem.Unauthorized, "%s", err))
}

// isOpen reports whether a call's group needs no token. A call without a group is never open, even
// if the open groups contain an empty name.
func (d *Checker) isOpen(n rest.Need) bool { return n.Open != "" && slices.Contains(d.open, n.Open) }

// bearer returns the token of a request. given is false if there is none.
func bearer(r *http.Request) (token string, given bool, err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", false, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", false, problem.New(problem.Unauthorized, "the header Authorization is not Bearer TOKEN").
			With("WWW-Authenticate", `Bearer realm="procaas", error="invalid_request"`)
	}
	return token, true, nil
}

// guarded reports whether any token is configured or was ever made, or an issuer of others is.
func (d *Checker) guarded(ctx context.Context) (bool, error) {
	if d.token != nil || d.others != nil {
		return true, nil
	}
	return d.access.Guarded(ctx)
}

// adminName is the audit's name for the bearer of the configured token.
const adminName = "admin"

// authenticate returns the grant of a token. A valid one is accepted whatever others have sent from
// the same address, which may be a proxy's. Valid tokens cannot be guessed. A caller that has sent
// many wrong ones only learns that this one is wrong, too.
func (d *Checker) authenticate(r *http.Request, token string) (credentials.Grant, error) {
	g, err := d.grantOf(r.Context(), sha256.Sum256([]byte(token)))
	if d.others != nil && errors.Is(err, credentials.ErrUnknownToken) {
		if who, known, no := d.others.Identify(r.Context(), token); known && no == nil {
			return d.grantOfOther(who)
		} else if known {
			err = no
		}
	}
	if p := (*problem.Problem)(nil); err == nil || errors.As(err, &p) || !isWrong(err) {
		return g, err
	}
	from := addressOf(r)
	if !d.failures.allows(from) {
		return credentials.Grant{}, problem.New(problem.TooManyFailures, "%s; many wrong tokens came from %s", err, from).With("Retry-After",
			"10")
	}
	d.failures.note(from)
	return credentials.Grant{}, by(g, problem.New(problem.Unauthorized, "%s", err).
		With("WWW-Authenticate", `Bearer realm="procaas", error="invalid_token"`))
}

// grantOf returns the grant of a token by its hash. The configured one works even if the store is
// unreachable.
func (d *Checker) grantOf(ctx context.Context, token [sha256.Size]byte) (credentials.Grant, error) {
	if d.token != nil && subtle.ConstantTimeCompare(token[:], d.token[:]) == 1 {
		return credentials.Grant{Name: adminName, Role: credentials.RoleAdmin}, nil
	}
	return d.access.GrantOf(ctx, token)
}

// grantOfOther returns what an identity may do.
func (d *Checker) grantOfOther(who credentials.Identity) (credentials.Grant, error) {
	g, err := d.others.Grant(who)
	if err != nil {
		return credentials.Grant{}, by(credentials.Grant{Name: who.Name}, problem.New(problem.Forbidden, "%s", err))
	}
	g.Name = who.Name
	return g, nil
}

// isWrong reports whether an error means that a token is invalid.
func isWrong(err error) bool {
	return errors.Is(err, credentials.ErrUnknownToken) || errors.Is(err, credentials.ErrTokenExpired)
}

// A sessionKey finds the session of a request in its context.
type sessionKey struct{}

// signedIn returns the grant of a request's session. given is false if there is none, or if the
// session or its token has ended.
func (d *Checker) signedIn(r *http.Request) (g credentials.Grant, given bool, err error) {
	session, ok := r.Context().Value(sessionKey{}).(string)
	if !ok {
		return g, false, nil
	}
	s, err := d.access.SignedIn(r.Context(), session)
	switch {
	case err == nil && s.Identity == nil:
		g, err = d.grantOf(r.Context(), s.Token)
	case err == nil && d.others == nil: // this node knows nobody by that issuer
		err = credentials.ErrUnknownToken
	case err == nil:
		g, err = d.grantOfOther(*s.Identity)
	}
	if err != nil && isWrong(err) {
		return credentials.Grant{}, false, nil
	}
	return g, err == nil, err
}

// An Identifier recognises callers without a token of the server, such as those of a company's own issuer of tokens.
type Identifier interface {
	// Identify returns the bearer of a token. It returns false if the token is not of its form, so that it is just an unknown one. The
	// error says what is wrong with the token. It wraps [credentials.ErrUnknownToken], or is a problem if the token could not be looked at.
	Identify(ctx context.Context, token string) (credentials.Identity, bool, error)

	// Grant returns what somebody may do now. The error says why it is nothing.
	Grant(who credentials.Identity) (credentials.Grant, error)

	// Entrances returns where people sign in with a browser, to see a page of the console then.
	Entrances(next string) []credentials.Entrance
}

// admitEvery is how often a long call checks whether its caller may still make it.
const admitEvery = time.Second

// May returns an error if the caller may not make a call with this need.
func (d *Checker) May(r *http.Request, n rest.Need) error {
	_, err := d.grantFor(r, n)
	return err
}

// MayGoOn reports whether a caller may continue a long call. It returns false if
// the token was revoked. If the store is unreachable it returns true, because the answer comes from
// memory.
func (d *Checker) MayGoOn(r *http.Request, n rest.Need) bool {
	err := d.May(r, n)
	return err == nil || problem.Of(err).Status >= http.StatusInternalServerError
}

// WhileAdmitted ends a long call when its caller may no longer make it, because the token is
// revoked or the session has ended. Call release when the call is over.
func (d *Checker) WhileAdmitted(r *http.Request, n rest.Need) (lasting *http.Request, release func()) {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(admitEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := d.May(r, n)
			if p := (*problem.Problem)(nil); errors.As(err, &p) && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) {
				cancel()
				return
			}
		}
	}()
	return r.WithContext(ctx), func() { cancel(); <-ended }
}

// addressOf returns the address of a request without the port, because a new connection is not a
// new caller.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// checkHost refuses a caller without a token that calls a local server by a foreign name. A browser
// does so if a page of another site has let its own name resolve to this machine, because then both
// are the same site to it.
func (d *Checker) checkHost(r *http.Request) error {
	if !d.local {
		return nil
	}
	host := r.Host
	if strings.Contains(host, ":") {
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if err := refuseForwarded(r, host, d.hosts); err != nil {
		return err
	}
	if urls.IsThisMachine(host) || slices.Contains(d.hosts, host) {
		return nil
	}
	return problem.New(problem.UnknownHost, "this server is localhost, and the request is for the host %q; allow it with --host, or make "+
		"tokens and send one", host)
}

// forwardings are the headers that proxies add, in net/http's form.
var forwardings = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Proto", "X-Real-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip",
	"X-Original-Forwarded-For", "X-Envoy-External-Address", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip", "Via",
}

// refuseForwarded refuses a caller without a token behind a proxy on this machine, because it may
// be anybody. It allows a proxy that calls the server by a name of --host.
func refuseForwarded(r *http.Request, host string, hosts []string) error {
	i := slices.IndexFunc(forwardings, func(name string) bool {
		values := r.Header[name]
		return len(values) > 0 && values[0] != ""
	})
	if i < 0 || slices.Contains(hosts, host) && !urls.IsThisMachine(host) {
		return nil
	}
	return problem.New(problem.UnknownHost, "a proxy has passed the request on (%s), and this server lets callers of its own machine in "+
		"without a token: "+
		"make tokens, procaas token new --role admin, and send one, or let the proxy send a Host that --host names", forwardings[i])
}

// forbidden returns the problem of a role without permission.
func forbidden(g credentials.Grant, n rest.Need) *problem.Problem {
	if g.Has(n.Role) {
		return by(g, problem.New(problem.Forbidden, "the token %s holds for %s; the call needs one that holds everywhere", g.Name,
			strings.Join(g.Paths, ", ")))
	}
	if g.By != "" {
		return by(g, problem.New(problem.Forbidden, "%s is %s by %s; the call needs %s", g.Name, article(g.Role), g.By, article(n.Role)))
	}
	return by(g, problem.New(problem.Forbidden, "the token %s is %s's; the call needs %s's", g.Name, article(g.Role), article(n.Role)))
}

// by adds the name of the refused caller.
func by(g credentials.Grant, p *problem.Problem) *problem.Problem {
	p.Token = g.Name
	return p
}

// article returns a role with its indefinite article.
func article(r credentials.Role) string {
	if strings.HasPrefix(string(r), "o") || strings.HasPrefix(string(r), "a") {
		return "an " + string(r)
	}
	return "a " + string(r)
}
