package outbound

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"procaas/dsl/tree"
)

// Tokens are the access tokens of a node, in memory only: one for each service with oauth2 and each value of its secret. The zero
// value is ready to use.
type Tokens struct {
	Targets *Targets                      // limits the issuers; nil for all
	Log     *slog.Logger                  // may be nil
	Asked   func(service, outcome string) // counts requests for tokens, by [TokenGranted] and the like; may be nil

	mu    sync.Mutex // guards known
	known map[[sha256.Size]byte]*issuer
}

// These are the outcomes of a request for a token.
const (
	TokenGranted = "granted"
	TokenRefused = "refused" // a retry cannot mend it
	TokenFailed  = "failed"
)

const (
	tokenTime    = 10 * time.Second // for one request
	tokenPause   = time.Second      // after a failed request, before the next one
	refusalPause = 10 * time.Second // between renewals because a service answers 401
	tokenUnused  = time.Hour        // after which a token that nobody uses is forgotten
	longestPause = time.Hour        // that an issuer may ask for
	longestLead  = time.Minute      // before its end that a token is renewed
	shownError   = 300              // characters of an issuer's description
)

// A TokenError reports that an issuer has returned no token.
type TokenError struct {
	Until time.Time // before which the issuer gets no other request, since it has asked for that; zero for any time

	text      string
	permanent bool
}

// Error implements error.
func (e *TokenError) Error() string { return e.text }

// Permanent reports whether a retry is useless, for [model.IsPermanent].
func (e *TokenError) Permanent() bool { return e.permanent }

// Token returns the access token for a service with oauth2, with its type, such as Bearer abc. refused is a token that the
// service has just answered with 401, or "": then Token returns another one, or "" if there is no other for now. hide removes
// secrets from what the issuer says. The error is a [TokenError] unless ctx ends.
func (t *Tokens) Token(ctx context.Context, s *tree.Service, secret, refused string, hide func(string) string) (string, error) {
	i := t.issuer(s, secret)
	now := time.Now()
	i.mu.Lock()
	i.used = now
	have := i.valid(now)
	switch {
	case have != "" && have != refused && (now.Before(i.renew) || now.Before(i.resume)):
		i.mu.Unlock()
		return have, nil // if the call has another one, some call has renewed it
	case have != "" && have == refused && now.Sub(i.refused) < refusalPause:
		i.mu.Unlock()
		return "", nil
	case have != "" && have == refused:
		i.refused, i.token, have = now, "", ""
	case have == "" && i.flight == nil && now.Before(i.resume):
		defer i.mu.Unlock()
		return "", i.failed
	}
	// Begun or joined under the lock, so calls that need a token at once make one request.
	f := i.begin(hide, t.asked(s.ID))
	i.mu.Unlock()
	if have != "" {
		return have, nil // it is renewed meanwhile
	}
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return "", fmt.Errorf("wait for an access token from %s: %w", i.at, ctx.Err())
	}
}

// asked returns what counts a request for a token, and logs it when it changes something.
func (t *Tokens) asked(service string) func(before, now error) {
	return func(before, now error) {
		outcome := TokenGranted
		if now != nil {
			outcome = TokenFailed
		}
		if e, ok := errors.AsType[*TokenError](now); ok && e.permanent {
			outcome = TokenRefused
		}
		if t.Asked != nil {
			t.Asked(service, outcome)
		}
		switch {
		case t.Log == nil:
		case now != nil && before == nil:
			t.Log.Warn("no access token; calls of the service fail until there is one", "service", service, "error", now)
		case now == nil && before != nil:
			t.Log.Info("there are access tokens again", "service", service)
		}
	}
}

// issuer returns the issuer of tokens for a service, and forgets those whose tokens nobody has used for long.
func (t *Tokens) issuer(s *tree.Service, secret string) *issuer {
	o := s.Auth.OAuth2
	text, err := json.Marshal([]any{s.ID, o.TokenURL, o.ClientID, secret, o.Scopes, o.Params, o.SendIn})
	if err != nil {
		panic(err) // texts can be encoded
	}
	key := sha256.Sum256(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.known[key]; i != nil {
		return i
	}
	now := time.Now()
	maps.DeleteFunc(t.known, func(_ [sha256.Size]byte, i *issuer) bool { return i.isUnused(now) })
	if t.known == nil {
		t.known = map[[sha256.Size]byte]*issuer{}
	}
	i := newIssuer(s, secret, t.Targets)
	t.known[key] = i
	return i
}

// Close ends the current requests for tokens.
func (t *Tokens) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, i := range t.known {
		i.mu.Lock()
		f := i.flight
		i.mu.Unlock()
		if f != nil {
			f.cancel()
			<-f.done
		}
	}
}

// An issuer gets tokens for a service with one secret.
type issuer struct {
	service string
	at      string // where it is, for people
	config  clientcredentials.Config
	client  *http.Client

	mu      sync.Mutex // guards the following
	token   string     // with its type
	ends    time.Time  // when the token can no longer be used; zero for never
	renew   time.Time  // when to ask for the next one; after all times for never
	used    time.Time
	refused time.Time    // when a service last answered 401
	failed  error        // of the last request; nil if it succeeded
	resume  time.Time    // before which there is no request after one that failed
	flight  *tokenFlight // the current request; nil for none
}

// A tokenFlight is a request for a token. token and err are set when done is closed.
type tokenFlight struct {
	cancel context.CancelFunc
	done   chan struct{}
	token  string
	err    error
}

func newIssuer(s *tree.Service, secret string, targets *Targets) *issuer {
	o := s.Auth.OAuth2
	style := oauth2.AuthStyleInHeader
	if o.SendIn == "body" {
		style = oauth2.AuthStyleInParams
	}
	params := url.Values{}
	for name, value := range o.Params {
		params.Set(name, value)
	}
	at := o.TokenURL
	if u, err := url.Parse(o.TokenURL); err == nil {
		public := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		at = public.String()
	}
	return &issuer{
		service: s.ID, at: at,
		config: clientcredentials.Config{
			ClientID: o.ClientID, ClientSecret: secret, TokenURL: o.TokenURL, Scopes: o.Scopes, EndpointParams: params, AuthStyle: style,
		},
		// A new connection each time: one that was idle since the last token may be dead, and the request is not repeated.
		client: NewClient(Reach{Declared: []string{o.TokenURL}, Fresh: []string{o.TokenURL}, Targets: targets}),
	}
}

// valid returns the token if it can still be used.
func (i *issuer) valid(now time.Time) string {
	if i.ends.IsZero() || now.Before(i.ends) {
		return i.token
	}
	return ""
}

func (i *issuer) isUnused(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.flight == nil && now.Sub(i.used) > tokenUnused
}

// begin begins a request for a token, or joins the current one. The caller has the lock. The request does not end with the call
// that began it, since others wait for it, too.
func (i *issuer) begin(hide func(string) string, asked func(before, now error)) *tokenFlight {
	if i.flight != nil {
		return i.flight
	}
	ctx, cancel := context.WithTimeout(context.Background(), tokenTime)
	f := &tokenFlight{cancel: cancel, done: make(chan struct{})}
	i.flight = f
	go func() { // until done, or [Tokens.Close]
		defer cancel()
		began := time.Now()
		token, err := i.config.Token(context.WithValue(ctx, oauth2.HTTPClient, i.client))
		if err == nil {
			f.token, err = headerOf(token)
		}
		if err != nil {
			f.err = i.describe(ctx, err, hide)
		}
		before := i.settle(f, token, began)
		asked(before, f.err)
		close(f.done)
	}()
	return f
}

// settle keeps the outcome of a request, and returns the error of the one before.
func (i *issuer) settle(f *tokenFlight, token *oauth2.Token, began time.Time) (before error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before = i.failed
	i.flight, i.failed = nil, f.err
	if f.err != nil {
		i.resume = time.Now().Add(tokenPause)
		if e, ok := errors.AsType[*TokenError](f.err); ok && e.Until.After(i.resume) {
			i.resume = e.Until
		}
		return before
	}
	i.token, i.ends, i.resume = f.token, time.Time{}, time.Time{}
	i.renew = began.Add(1 << 62)
	if !token.Expiry.IsZero() {
		lead := min(token.Expiry.Sub(began)/5, longestLead)
		i.renew, i.ends = token.Expiry.Add(-lead), token.Expiry.Add(-lead/4) // a call that has just got it still takes a while
	}
	return before
}

// headerOf returns a token as it is sent.
func headerOf(t *oauth2.Token) (string, error) {
	text := t.Type() + " " + t.AccessToken
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return "", errors.New("the token has control characters")
	}
	return text, nil
}

// describe returns the error of a request for people.
func (i *issuer) describe(ctx context.Context, err error, hide func(string) string) error {
	const check = "check that it is reachable, and token-url"
	out := &TokenError{}
	what, remedy := err.Error(), check
	var permanent interface{ Permanent() bool }
	switch reply, answered := errors.AsType[*oauth2.RetrieveError](err); {
	case answered:
		status := reply.Response.StatusCode
		now := time.Now()
		if delay, ok := RetryAfter(reply.Response.Header, now); ok && status >= http.StatusBadRequest {
			out.Until = now.Add(min(delay, longestPause))
		}
		what = fmt.Sprint(status)
		for _, more := range []string{reply.ErrorCode, reply.ErrorDescription} {
			if more != "" {
				what += " " + more
			}
		}
		switch {
		case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusTooEarly:
			remedy = "the node asks again"
		case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status < 400:
			out.permanent, remedy = true, "check token-url"
		default:
			out.permanent, remedy = true, "check client-id, the secret of client-secret, scopes and send-in"
		}
	case errors.As(err, &permanent) && permanent.Permanent():
		out.permanent = true
		if u, ok := errors.AsType[*url.Error](err); ok {
			what = u.Err.Error()
		}
	case ctx.Err() != nil:
		what = "no reply within " + tokenTime.String()
	default:
		if u, ok := errors.AsType[*url.Error](err); ok {
			what = u.Err.Error()
		}
	}
	if text := []rune(hide(what)); len(text) > shownError {
		what = string(text[:shownError]) + "…"
	} else {
		what = string(text)
	}
	out.text = fmt.Sprintf("service %s: no access token from %s: %s; %s", i.service, i.at, what, remedy)
	return out
}
