package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"procaas/engine"
)

// This file says who may make which call. Until a token is configured or made,
// everybody may make all of them.

// A need is what a call needs of its caller. The zero need is nothing.
type need struct {
	role       engine.Role
	everywhere bool   // a grant that is bound to paths does not do
	open       string // one of the groups of [Options].Open that free the call; empty for none
}

// The needs of calls. Those that name a path, a pipeline or a run look at the
// paths of the grant besides; see mayAt.
var (
	free    = need{}
	submits = need{role: engine.RoleSubmitter, open: OpenEvents}
	reads   = need{role: engine.RoleViewer, open: OpenRuns}
	scrapes = need{role: engine.RoleViewer, open: OpenMetrics}
	views   = need{role: engine.RoleViewer}
	asks    = need{role: engine.RoleSubmitter} // services, whose questions may register keys
	works   = need{role: engine.RoleWorker}    // see mayWork
	steers  = need{role: engine.RoleOperator}
	tunes   = need{role: engine.RoleOperator, everywhere: true}
	rules   = need{role: engine.RoleAdmin}
)

// The groups of calls that need no token when [Options].Open has them.
const (
	OpenEvents  = "events"  // submitting events and tasks
	OpenRuns    = "runs"    // reading runs and keys
	OpenMetrics = "metrics" // /metrics
)

// OpenGroups lists them.
func OpenGroups() []string { return []string{OpenEvents, OpenRuns, OpenMetrics} }

// needs is the one table of what the operations need, by their ids.
var needs = map[string]need{
	"submit-events": submits,
	"put-tasks":     submits,

	"set-queue":       steers,
	"cancel-queued":   steers,
	"retry-queued":    steers,
	"move-queued":     steers,
	"claim-tasks":     works,
	"heartbeat-tasks": works,
	"complete-tasks":  works,
	"fail-tasks":      works,
	"snooze-tasks":    works,
	"list-queues":     views,
	"list-tasks":      views,

	"list-runs":    reads,
	"get-run":      reads,
	"explain-run":  reads,
	"get-key":      reads,
	"page":         free, // serveConsole lets people in
	"retry-run":    steers,
	"cancel-run":   steers,
	"retry-runs":   steers,
	"make-up-runs": steers,
	"cancel-runs":  steers,
	"migrate-run":  steers,
	"migrate-runs": steers,

	"route-key":      views,
	"get-assignment": views,

	"list-clusters":     views,
	"get-cluster":       views,
	"list-moves":        views,
	"explain-partition": views,
	"record-cluster":    views,
	"pull-lever":        tunes,
	"release-lever":     tunes,

	"list-handlers": views,
	"list-services": views,
	"get-backlog":   views,
	"list-nodes":    views,
	"list-audit":    views,
	"verify-audit":  views,
	"list-configs":  views,
	"list-controls": views,

	"get-inbox":   views,
	"move-slots":  rules,
	"remove-cell": rules,

	"list-shard-maps": views,
	"resolve-shard":   asks,
	"resolve-shards":  asks,
	"watch-shard-map": asks,
	"list-shards":     views,
	"set-shard":       tunes,
	"enroll-shard":    rules,
	"split-placement": tunes,
	"merge-placement": tunes,

	"list-shard-transfers": views,
	"order-shard-transfer": tunes,

	"set-pipeline-control":    steers,
	"set-stage-control":       steers,
	"set-handler-control":     steers,
	"remove-pipeline-control": steers,
	"remove-stage-control":    steers,
	"remove-handler-control":  steers,
	"undo-control":            steers,
	"end-fallbacks":           steers,
	"set-config":              tunes,

	"reload":       rules,
	"list-tokens":  rules,
	"new-token":    rules,
	"revoke-token": rules,

	"metrics":  scrapes,
	"health":   free,
	"ready":    free,
	"describe": free,
}

// Access tells who callers are.
type Access interface {
	Guarded(ctx context.Context) (bool, error)
	GrantOf(ctx context.Context, token [sha256.Size]byte) (engine.Grant, error)
	OpenSession(ctx context.Context, name string, token [sha256.Size]byte) (string, error)
	SessionToken(ctx context.Context, session string) ([sha256.Size]byte, error)
	CloseSession(ctx context.Context, session string) error
	Tokens(ctx context.Context) ([]engine.TokenView, error)
	NewToken(ctx context.Context, spec engine.TokenSpec, by engine.Actor) (v engine.TokenView, secret string, err error)
	RevokeToken(ctx context.Context, name string, by engine.Actor) (engine.TokenView, error)
	AuditRefusal(ctx context.Context, by engine.Actor, call, detail string) error
}

// anonymous is who needs no token.
const anonymous = "anonymous"

// A grantKey finds the grant of a request in its context.
type grantKey struct{}

// granted gives the grant that a request was let in with; the zero one, which holds for
// nothing, when the call needs none.
func granted(r *http.Request) engine.Grant {
	g, _ := r.Context().Value(grantKey{}).(engine.Grant)
	return g
}

// actor says who changes something.
func actor(r *http.Request, reason string) engine.Actor {
	return engine.Actor{Name: granted(r).Name, Reason: reason}
}

// admit lets a request in, with the grant of its caller, or refuses it.
func (s *server) admit(r *http.Request, n need) (*http.Request, error) {
	if n.role == "" {
		return r, nil
	}
	g, err := s.grantFor(r, n)
	if err != nil {
		return r, err
	}
	return r.WithContext(context.WithValue(r.Context(), grantKey{}, g)), nil
}

// grantFor finds the grant of the caller of a request, and refuses one that does not do.
func (s *server) grantFor(r *http.Request, n need) (engine.Grant, error) {
	g, err := s.identify(r, n)
	if err != nil {
		return g, err
	}
	switch {
	case s.isOpen(n):
		g.Paths = nil // they keep nobody from what everybody may do
	case !g.Has(n.role), n.everywhere && !g.Covers(""):
		return g, forbidden(g, n)
	}
	return g, nil
}

// identify tells who sends a request. Without a token it is nobody in particular,
// who is let in where that is allowed. A token that is sent counts even there: a wrong one
// is refused, so that its bearer learns of it before a call that needs it.
func (s *server) identify(r *http.Request, n need) (engine.Grant, error) {
	if g, given, err := s.signedIn(r); given || err != nil {
		return g, err
	}
	token, given, err := bearer(r)
	if err != nil {
		return engine.Grant{}, err
	}
	if !given && s.isOpen(n) {
		return engine.Grant{Name: anonymous}, s.checkHost(r)
	}
	guarded, err := s.guarded(r.Context())
	switch {
	case err != nil:
		return engine.Grant{}, err
	case !guarded:
		return engine.Grant{Name: anonymous, Role: engine.RoleAdmin}, s.checkHost(r)
	case !given:
		return engine.Grant{}, refuse(codeUnauthorized, "the call needs the header Authorization: Bearer TOKEN, with the token of %s", article(n.role)).
			with("WWW-Authenticate", `Bearer realm="procaas"`)
	}
	return s.authenticate(r, token)
}

// isOpen tells whether a call is of a group that needs no token. A call of no group never
// is: an empty name among the open groups must not open all of them.
func (s *server) isOpen(n need) bool { return n.open != "" && slices.Contains(s.open, n.open) }

// bearer gives the token of a request; given is false for one without, which is no error.
func bearer(r *http.Request) (token string, given bool, err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", false, nil
	}
	scheme, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", false, refuse(codeUnauthorized, "the header Authorization is not Bearer TOKEN").
			with("WWW-Authenticate", `Bearer realm="procaas", error="invalid_request"`)
	}
	return token, true, nil
}

// guarded tells whether any token is configured or was ever made.
func (s *server) guarded(ctx context.Context) (bool, error) {
	if s.token != nil {
		return true, nil
	}
	return s.engine.Guarded(ctx)
}

// adminName is what the audit calls the bearer of the configured token, which has no name of
// its own.
const adminName = "admin"

// authenticate finds the grant of a token. A good one counts whatever others have sent from
// the same address, which may be a proxy's: neither those that were made nor the configured
// one can be guessed. Who has sent many wrong ones learns only that this one is wrong, too.
func (s *server) authenticate(r *http.Request, token string) (engine.Grant, error) {
	g, err := s.grantOf(r.Context(), sha256.Sum256([]byte(token)))
	if err == nil || !isWrong(err) {
		return g, err
	}
	from := addressOf(r)
	if !s.failures.allows(from) {
		return engine.Grant{}, refuse(codeTooManyFailures, "%s; many wrong tokens came from %s", err, from).with("Retry-After", "10")
	}
	s.failures.note(from)
	s.log.Warn("wrong token", "from", from, "method", r.Method, "url_path", r.URL.Path, "error", err)
	return engine.Grant{}, refuse(codeUnauthorized, "%s", err).
		with("WWW-Authenticate", `Bearer realm="procaas", error="invalid_token"`)
}

// grantOf finds the grant of a token by its hash. The configured one counts also while the
// store is away.
func (s *server) grantOf(ctx context.Context, token [sha256.Size]byte) (engine.Grant, error) {
	if s.token != nil && subtle.ConstantTimeCompare(token[:], s.token[:]) == 1 {
		return engine.Grant{Name: adminName, Role: engine.RoleAdmin}, nil
	}
	return s.engine.GrantOf(ctx, token)
}

// isWrong reports whether an error says that a token is none, or none any more.
func isWrong(err error) bool {
	return errors.Is(err, engine.ErrUnknownToken) || errors.Is(err, engine.ErrTokenExpired)
}

// A sessionKey finds the session of a request in its context.
type sessionKey struct{}

// signedIn finds the grant of the session of a request; given is false for one without, or
// whose session or token has ended.
func (s *server) signedIn(r *http.Request) (g engine.Grant, given bool, err error) {
	session, ok := r.Context().Value(sessionKey{}).(string)
	if !ok {
		return g, false, nil
	}
	token, err := s.engine.SessionToken(r.Context(), session)
	if err == nil {
		g, err = s.grantOf(r.Context(), token)
	}
	if err != nil && isWrong(err) {
		return engine.Grant{}, false, nil
	}
	return g, err == nil, err
}

// admitEvery is how often it is looked whether the caller of a call that lasts may still
// make it.
const admitEvery = time.Second

// whileAdmitted ends a call that lasts when its caller may not make it any more: the token
// is revoked, or the session has ended. release must be called when the call is over.
func (s *server) whileAdmitted(r *http.Request, n need) (lasting *http.Request, release func()) {
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
			_, err := s.admit(r, n)
			if p := (*Problem)(nil); errors.As(err, &p) && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden) {
				cancel()
				return
			}
		}
	}()
	return r.WithContext(ctx), func() { cancel(); <-ended }
}

// addressOf is where a request comes from, without the port: a new connection is no new caller.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// checkHost refuses a caller without a token on a server of this machine that
// calls it by a foreign name. A browser does when a page of another site has let
// its own name resolve to this machine: to it, both are the same site.
func (s *server) checkHost(r *http.Request) error {
	if !s.local {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if err := refuseForwarded(r, host, s.hosts); err != nil {
		return err
	}
	if isLoopback(host) || slices.Contains(s.hosts, host) {
		return nil
	}
	return refuse(codeUnknownHost, "this server is localhost, and the request is for the host %q; allow it with --host, or make tokens and send one", host)
}

// forwardings are what proxies add to the requests that they pass on.
var forwardings = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Server", "X-Forwarded-Proto", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"X-Original-Forwarded-For", "X-Envoy-External-Address", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip", "Via",
}

// refuseForwarded refuses a caller without a token that a proxy of this machine has passed
// on: it may be anybody. A proxy that calls the server by a name of --host is meant.
func refuseForwarded(r *http.Request, host string, hosts []string) error {
	i := slices.IndexFunc(forwardings, func(name string) bool { return r.Header.Get(name) != "" })
	if i < 0 || slices.Contains(hosts, host) && !isLoopback(host) {
		return nil
	}
	return refuse(codeUnknownHost, "a proxy has passed the request on (%s), and this server lets callers of its own machine in without a token: "+
		"make tokens, procaas token new --role admin, and send one, or let the proxy send a Host that --host names", forwardings[i])
}

// isLoopback reports whether a host, without a port, is this machine by its own names.
func isLoopback(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// mayAt refuses a caller whose grant covers none of the paths. An empty path is covered by
// grants that hold everywhere only.
func mayAt(r *http.Request, paths ...string) error {
	g := granted(r)
	if slices.ContainsFunc(paths, g.Covers) {
		return nil
	}
	slices.Sort(paths)
	paths = slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return p == "" })
	needed := "names neither a pipeline nor a handler below these"
	if len(paths) > 0 {
		needed = "needs one that holds for " + strings.Join(paths, " or ")
	}
	return refuse(codeForbidden, "the token %s holds for %s; the call %s", g.Name, strings.Join(g.Paths, ", "), needed).by(g)
}

// forbidden says that the role of a token does not allow a call.
func forbidden(g engine.Grant, n need) *Problem {
	if g.Has(n.role) {
		return refuse(codeForbidden, "the token %s holds for %s; the call needs one that holds everywhere", g.Name, strings.Join(g.Paths, ", ")).by(g)
	}
	return refuse(codeForbidden, "the token %s is %s's; the call needs %s's", g.Name, article(g.Role), article(n.role)).by(g)
}

// by says to whom something is refused.
func (p *Problem) by(g engine.Grant) *Problem {
	p.token = g.Name
	return p
}

// article puts the indefinite article before a role.
func article(r engine.Role) string {
	if strings.HasPrefix(string(r), "o") || strings.HasPrefix(string(r), "a") {
		return "an " + string(r)
	}
	return "a " + string(r)
}
