package signon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"procaas/engine/api/problem"
)

const (
	keysFresh   = time.Minute      // after that long, keys are read again: the issuer may have withdrawn one
	keysAgain   = 10 * time.Second // the pause after a failure, and between readings for keys that nobody knows
	keysAtOnce  = 3                // readings for keys that nobody knows, without a pause
	issuerTime  = 5 * time.Second  // of one request to the issuer
	mostKeyData = 1 << 20          // bytes
)

// algorithms are the signatures that are accepted. All need a key that only the issuer has: with a shared secret, or without any, a
// caller could sign for itself.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A provider knows the addresses and the keys of an issuer of tokens. What it has read stays while the issuer is away.
type provider struct {
	address string
	client  *http.Client // nil for the default
	log     *slog.Logger

	known   atomic.Pointer[known]
	reading singleflight.Group
	unknown *rate.Limiter // readings for keys that nobody knows

	mu   sync.Mutex // guards the rest
	away error      // why it could not be asked the last time; nil if it could
	told bool       // it was asked once
}

// known is what was read of an issuer at once. It never changes.
type known struct {
	oidc  *oidc.Provider
	keys  []jose.JSONWebKey
	end   string // address where people sign out there; empty for none
	named bool   // its answers to browsers say who it is, as RFC 9207 has it
}

func newProvider(address string, client *http.Client, log *slog.Logger) *provider {
	return &provider{address: address, client: client, log: log, unknown: rate.NewLimiter(rate.Every(keysAgain), keysAtOnce)}
}

// run reads the keys again and again until ctx ends.
func (p *provider) run(ctx context.Context) {
	for {
		pause := keysFresh
		if p.read(ctx) != nil {
			pause = keysAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// read reads the addresses and the keys of the issuer. Calls at the same time share one reading.
func (p *provider) read(ctx context.Context) error {
	_, err, _ := p.reading.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTime)
		defer cancel()
		now, err := p.ask(ctx)
		if err == nil {
			p.known.Store(now)
		}
		p.tell(err)
		return nil, err
	})
	return err
}

// tell notes whether the issuer could be asked, and logs that it is away, or is back.
func (p *provider) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.away
	p.away, p.told = err, true
	switch {
	case (err == nil) == (before == nil):
	case err != nil:
		p.log.Error("the issuer of tokens cannot be asked; its keys stay as they were read, and tokens of this server go on", "issuer", p.address,
			"keys", p.known.Load() != nil, "error", err)
	default:
		p.log.Info("the issuer of tokens answers again", "issuer", p.address)
	}
}

// state returns why the issuer could not be asked the last time, and whether it was asked at all.
func (p *provider) state() (away error, asked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.told
}

func (p *provider) ask(ctx context.Context) (*known, error) {
	if p.client != nil {
		ctx = oidc.ClientContext(ctx, p.client)
	}
	found, err := oidc.NewProvider(ctx, p.address)
	if err != nil {
		return nil, err
	}
	var said struct {
		Keys  string `json:"jwks_uri"`
		End   string `json:"end_session_endpoint"`
		Named bool   `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&said); err != nil {
		return nil, err
	}
	keys, err := p.readKeys(ctx, said.Keys)
	return &known{oidc: found, keys: keys, end: said.End, named: said.Named}, err
}

// readKeys reads a set of keys. Those of an unknown kind are left out.
func (p *provider) readKeys(ctx context.Context, address string) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client := p.client
	if client == nil {
		client = http.DefaultClient
	}
	reply, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys of %s: %s", address, reply.Status)
	}
	var set struct{ Keys []json.RawMessage }
	if err := json.NewDecoder(io.LimitReader(reply.Body, mostKeyData)).Decode(&set); err != nil {
		return nil, fmt.Errorf("keys of %s: %w", address, err)
	}
	var keys []jose.JSONWebKey
	for _, data := range set.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(data, &k) == nil && k.IsPublic() && k.Use != "enc" {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("keys of %s: there is none that verifies signatures", address)
	}
	return keys, nil
}

// get returns what is known of the issuer. It reads it if that was never possible.
func (p *provider) get(ctx context.Context) (*known, error) {
	if k := p.known.Load(); k != nil {
		return k, nil
	}
	if !p.unknown.Allow() {
		return nil, p.unreachable(errors.New("it did not answer a moment ago"))
	}
	if err := p.read(ctx); err != nil {
		return nil, p.unreachable(err)
	}
	return p.known.Load(), nil
}

// unreachable is the problem of callers whose token cannot be looked at.
func (p *provider) unreachable(err error) error {
	return problem.New(problem.NotReady, "the token cannot be checked, since its issuer %s does not answer: %s; tokens of this server go on",
		p.address, err).With("Retry-After", "10")
}

// verify returns the claims of a token that the issuer has signed. The error is a [*ClaimError], or a problem.
func (p *provider) verify(ctx context.Context, token string) (Claims, []byte, error) {
	by := &signer{provider: p}
	// The verifier of the library forgets what its errors wrap, so claims are checked by their caller, and the signer keeps its error.
	config := &oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SkipIssuerCheck: true}
	for _, a := range algorithms {
		config.SupportedSigningAlgs = append(config.SupportedSigningAlgs, string(a))
	}
	if _, err := oidc.NewVerifier(p.address, by, config).Verify(ctx, token); by.err != nil {
		return nil, nil, by.err
	} else if err != nil && by.payload == nil {
		return nil, nil, &ClaimError{"alg", "the token has no signature of a kind that is accepted: " + shortened(err.Error())}
	}
	c, err := ParseClaims(by.payload)
	if err != nil {
		return nil, nil, &ClaimError{"iss", "the token has no claims: " + err.Error()}
	}
	return c, by.payload, nil
}

// A signer verifies the signature of one token. It implements [oidc.KeySet].
type signer struct {
	*provider
	payload []byte
	err     error
}

// VerifySignature implements [oidc.KeySet].
func (s *signer) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	s.payload, s.err = s.signed(ctx, token)
	return s.payload, s.err
}

func (s *signer) signed(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSigned(token, algorithms)
	if err != nil {
		return nil, &ClaimError{"alg", shortened(err.Error())}
	}
	now, err := s.get(ctx)
	if err != nil {
		return nil, err
	}
	id := jws.Signatures[0].Header.KeyID
	if !now.has(id) && s.unknown.Allow() { // the issuer may have a new key
		if err := s.read(ctx); err != nil {
			return nil, s.unreachable(err)
		}
		now = s.known.Load()
	}
	if !now.has(id) {
		return nil, &ClaimError{"kid", fmt.Sprintf("the key %q is none of %s", shortened(id), s.address)}
	}
	for _, k := range now.keys {
		if id == "" || k.KeyID == id {
			if payload, err := jws.Verify(k); err == nil {
				return payload, nil
			}
		}
	}
	return nil, &ClaimError{"kid", "the signature is not by that key of " + s.address}
}

// has reports whether a token may be signed by one of the keys. A token may leave out which.
func (k *known) has(id string) bool {
	return id == "" || slices.ContainsFunc(k.keys, func(k jose.JSONWebKey) bool { return k.KeyID == id })
}
