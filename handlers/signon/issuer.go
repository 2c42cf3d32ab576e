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
	keysFresh   = 5 * time.Minute  // after that long, keys are read again: the issuer may have withdrawn one
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

// An issuer knows the addresses and the keys of an issuer of tokens. What it has read stays while the issuer is away.
type issuer struct {
	address string
	client  *http.Client // nil for the default
	log     *slog.Logger

	known   atomic.Pointer[known]
	reading singleflight.Group
	unknown *rate.Limiter // readings for keys that nobody knows

	mu   sync.Mutex // guards the rest
	away bool       // the log says so
}

// known is what was read of an issuer at once. It never changes.
type known struct {
	provider *oidc.Provider
	keys     []jose.JSONWebKey
	end      string // address where people sign out there; empty for none
}

func newIssuer(address string, client *http.Client, log *slog.Logger) *issuer {
	return &issuer{address: address, client: client, log: log, unknown: rate.NewLimiter(rate.Every(keysAgain), keysAtOnce)}
}

// run reads the keys again and again until ctx ends.
func (i *issuer) run(ctx context.Context) {
	for {
		pause := keysFresh
		if i.read(ctx) != nil {
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
func (i *issuer) read(ctx context.Context) error {
	_, err, _ := i.reading.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), issuerTime)
		defer cancel()
		now, err := i.ask(ctx)
		if err == nil {
			i.known.Store(now)
		}
		i.tell(err)
		return nil, err
	})
	return err
}

// tell logs that the issuer is away, or is back.
func (i *issuer) tell(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	before := i.away
	i.away = err != nil
	switch {
	case i.away == before:
	case i.away:
		i.log.Error("the issuer of tokens cannot be asked; its keys stay as they were read, and tokens of this server go on", "issuer", i.address,
			"keys", i.known.Load() != nil, "error", err)
	default:
		i.log.Info("the issuer of tokens answers again", "issuer", i.address)
	}
}

func (i *issuer) ask(ctx context.Context) (*known, error) {
	if i.client != nil {
		ctx = oidc.ClientContext(ctx, i.client)
	}
	p, err := oidc.NewProvider(ctx, i.address)
	if err != nil {
		return nil, err
	}
	var said struct {
		Keys string `json:"jwks_uri"`
		End  string `json:"end_session_endpoint"`
	}
	if err := p.Claims(&said); err != nil {
		return nil, err
	}
	keys, err := i.readKeys(ctx, said.Keys)
	return &known{provider: p, keys: keys, end: said.End}, err
}

// readKeys reads a set of keys. Those of an unknown kind are left out.
func (i *issuer) readKeys(ctx context.Context, address string) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	client := i.client
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
func (i *issuer) get(ctx context.Context) (*known, error) {
	if k := i.known.Load(); k != nil {
		return k, nil
	}
	if !i.unknown.Allow() {
		return nil, i.unreachable(errors.New("it did not answer a moment ago"))
	}
	if err := i.read(ctx); err != nil {
		return nil, i.unreachable(err)
	}
	return i.known.Load(), nil
}

// unreachable is the problem of callers whose token cannot be looked at.
func (i *issuer) unreachable(err error) error {
	return problem.New(problem.NotReady, "the token cannot be checked, since its issuer %s does not answer: %s; tokens of this server go on",
		i.address, err).With("Retry-After", "10")
}

// verify returns the claims of a token that the issuer has signed. The error is a [*ClaimError], or a problem.
func (i *issuer) verify(ctx context.Context, token string) (Claims, []byte, error) {
	by := &signer{issuer: i}
	// The verifier of the library forgets what its errors wrap, so claims are checked by their caller, and the signer keeps its error.
	config := &oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SkipIssuerCheck: true}
	for _, a := range algorithms {
		config.SupportedSigningAlgs = append(config.SupportedSigningAlgs, string(a))
	}
	if _, err := oidc.NewVerifier(i.address, by, config).Verify(ctx, token); by.err != nil {
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
	*issuer
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
