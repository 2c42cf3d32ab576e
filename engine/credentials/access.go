package credentials

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"procaas/engine/store"
)

// This file says who may call the API: tokens, what they allow, and how they are
// told. A token is 32 random bytes, of which the store keeps the hash; so nobody
// who reads the store can use it, and nobody can guess one.

// A Role is what the bearer of a token may do.
type Role string

// The roles.
const (
	RoleViewer    Role = "viewer"    // reads everything but tokens
	RoleSubmitter Role = "submitter" // submits events, and nothing else
	RoleWorker    Role = "worker"    // does tasks: claims them and says what became of them, and nothing else
	RoleOperator  Role = "operator"  // does what all these do, and steers runs and controls
	RoleAdmin     Role = "admin"     // does everything
)

// Roles lists them.
func Roles() []Role { return []Role{RoleViewer, RoleSubmitter, RoleWorker, RoleOperator, RoleAdmin} }

// takesPaths reports whether a role may be bound to paths.
func (r Role) takesPaths() bool { return r == RoleSubmitter || r == RoleWorker || r == RoleOperator }

// A Grant is what the bearer of a token may do.
type Grant struct {
	Name  string   // of the token: the actor of the audit
	Role  Role     // empty allows nothing
	Paths []string // at or below which the grant holds; everywhere when there are none
	Quota string   // as in [Token]

	quota *quota // nil for none
}

// Has reports whether a role is in the grant. A submitter or a worker is no viewer: programs
// that hand things in need not see what others do.
func (g Grant) Has(r Role) bool {
	switch g.Role {
	case RoleAdmin:
		return true
	case RoleOperator:
		return r != RoleAdmin
	}
	return g.Role == r
}

// Covers reports whether a path, such as pipeline/stage, is at or below one of the
// grant's. The empty path is everything.
func (g Grant) Covers(path string) bool {
	if len(g.Paths) == 0 {
		return true
	}
	return slices.ContainsFunc(g.Paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// Errors of [Access.GrantOf].
var (
	// ErrUnknownToken reports that a token was never made, or is revoked.
	ErrUnknownToken = errors.New("the token is none of this server's; it may have been revoked")

	// ErrTokenExpired reports that a token was good once.
	ErrTokenExpired = errors.New("the token has expired")
)

// A Token is what the store keeps of one, besides its name and its hash.
type Token struct {
	Role    Role       `json:"role"`
	Paths   []string   `json:"paths,omitempty"` // as in [Grant]
	Quota   string     `json:"quota,omitempty"` // how many events and tasks its bearer may hand in, such as 100/s; empty for any number
	Expires *time.Time `json:"expires"`         // null is never
	Revoked bool       `json:"revoked,omitempty"`
}

// A TokenView is a token as people and programs see it.
type TokenView struct {
	Name string `json:"name"`
	Token
	State   string    `json:"state"` // active, expired or revoked
	Changed time.Time `json:"changed"`
	By      string    `json:"by"` // who made or revoked it
	Reason  string    `json:"reason"`
}

// The states of a token.
const (
	TokenActive  = "active"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// A liveToken is a token made ready to be compared with.
type liveToken struct {
	Token
	name    string
	setting store.Setting // with the hash, and the revision that a change must name
}

// Tokens are all tokens of one revision. They are never changed.
type Tokens []*liveToken

// ReadTokens reads what the store keeps.
func ReadTokens(set map[string]store.Setting) (Tokens, error) {
	all := Tokens{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		t := &liveToken{name: name, setting: set[name]}
		if err := json.Unmarshal(t.setting.Value, &t.Token); err != nil {
			return nil, fmt.Errorf("read token %s: %w", name, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// find returns the token with a hash; nil when there is none. It compares with all
// of them, each in constant time, so that how long it takes tells nothing.
func (all Tokens) find(hash [sha256.Size]byte) *liveToken {
	var found *liveToken
	for _, t := range all {
		if subtle.ConstantTimeCompare(hash[:], t.setting.Hash) == 1 && !t.Revoked {
			found = t
		}
	}
	return found
}

// state reports whether the token is good now. It expires at the moment itself, not after it.
func (t *liveToken) state(now time.Time) string {
	switch {
	case t.Revoked:
		return TokenRevoked
	case t.Expires != nil && !now.Before(*t.Expires):
		return TokenExpired
	}
	return TokenActive
}

// view shows the token, without anything by which it could be used.
func (t *liveToken) view(now time.Time) TokenView {
	return TokenView{
		Name: t.name, Token: t.Token, State: t.state(now),
		Changed: t.setting.Changed, By: t.setting.By.Name, Reason: t.setting.By.Reason,
	}
}

// An Access says who may call the API, and keeps tokens and sessions.
type Access struct {
	Kept      store.Tokens
	Documents store.Documents
	Known     Known
	Now       func() time.Time
	Log       *slog.Logger

	// CheckPath refuses a path that leads to nothing.
	CheckPath func(path string) error

	Sharers   func() int                    // that are alive, and share quotas; 0 before that is known
	Overspent func(token string, items int) // notes what is beyond a quota

	quotas sync.Map // of tokens by name, each a *quota
}

// Known is what this node knows of the tokens in the store.
type Known interface {
	// Tokens are those that were read last; nil before.
	Tokens() *Tokens

	// Refresh reads them.
	Refresh(ctx context.Context) error

	// Learn is Refresh after a change, which stays when they cannot be read.
	Learn(ctx context.Context)
}

// tokens returns the tokens as this node knows them. What a node does not know yet
// is read, so that nobody gets in before.
func (a *Access) tokens(ctx context.Context) (Tokens, error) {
	if all := a.Known.Tokens(); all != nil {
		return *all, nil
	}
	return a.freshTokens(ctx)
}

// Guarded reports whether a token was ever made: from then on calls need one. That all are
// revoked or have expired does not open the server again.
func (a *Access) Guarded(ctx context.Context) (bool, error) {
	all, err := a.tokens(ctx)
	return len(all) > 0, err
}

// GrantOf returns what the bearer of a token with the hash may do: the error is
// [ErrUnknownToken], [ErrTokenExpired] or of the store.
func (a *Access) GrantOf(ctx context.Context, hash [sha256.Size]byte) (Grant, error) {
	all, err := a.tokens(ctx)
	if err != nil {
		return Grant{}, err
	}
	t := all.find(hash)
	if t == nil {
		return Grant{}, ErrUnknownToken
	}
	if t.state(a.Now()) == TokenExpired {
		return Grant{}, fmt.Errorf("%w: %s was good until %s", ErrTokenExpired, t.name, t.Expires.UTC().Format(time.RFC3339))
	}
	return Grant{Name: t.name, Role: t.Role, Paths: t.Paths, Quota: t.Quota, quota: a.quotaOf(t)}, nil
}

// newSecret makes what cannot be guessed: 32 random bytes as text.
func newSecret() string {
	random := make([]byte, sha256.Size)
	rand.Read(random) // never fails
	return "procaas_" + base64.RawURLEncoding.EncodeToString(random)
}

// The least that an admin token must be, which somebody may have made up.
const (
	leastToken = 20 // bytes
	leastKinds = 8  // of bytes
)

// CheckAdminToken refuses a token that could be guessed. Of one that is given as its hash
// nobody can tell.
func CheckAdminToken(text string) error {
	if _, err := HashToken(text); err != nil || strings.HasPrefix(strings.TrimSpace(text), "sha256:") {
		return err
	}
	text = strings.TrimSpace(text)
	kinds := map[byte]bool{}
	for i := range len(text) {
		kinds[text[i]] = true
	}
	if len(text) >= leastToken && len(kinds) >= leastKinds {
		return nil
	}
	return fmt.Errorf("want %d characters or more, %d of them different, have %d and %d, which can be guessed; this one was made just now "+
		"and is nobody's yet: %s",
		leastToken, leastKinds, len(text), len(kinds), newSecret())
}

// HashToken reads how a flag or a file tells a token: as it is, or as its hash,
// sha256: with 64 hexadecimal digits. A plain hash is enough, without salt and many rounds:
// nobody guesses 32 random bytes. Whoever chooses a token by hand has to make it as long.
func HashToken(text string) (hash [sha256.Size]byte, err error) {
	text = strings.TrimSpace(text)
	if digits, hashed := strings.CutPrefix(text, "sha256:"); hashed {
		data, err := hex.DecodeString(digits)
		if err != nil || len(data) != len(hash) {
			return hash, errors.New("want sha256: and 64 hexadecimal digits")
		}
		return [sha256.Size]byte(data), nil
	}
	if text == "" || strings.ContainsAny(text, " \t\r\n") {
		return hash, errors.New("want one token, without spaces")
	}
	return sha256.Sum256([]byte(text)), nil
}
