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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/store"
)

// This file decides who may call the API: tokens and what they allow. A token is 32 random bytes.
// The store has only its hash, so a reader of the store cannot use it, and nobody can guess it.

// A Role is what the bearer of a token may do.
type Role string

// These are the roles.
const (
	RoleViewer    Role = "viewer"    // reads everything except tokens
	RoleSubmitter Role = "submitter" // only submits events
	RoleWorker    Role = "worker"    // only claims tasks and reports their outcomes
	RoleOperator  Role = "operator"  // does what all of these do, and steers runs and controls
	RoleDeployer  Role = "deployer"  // only makes versions of pipelines current, and reads versions and nodes
	RoleAdmin     Role = "admin"     // does everything
)

// Roles lists the roles.
func Roles() []Role {
	return []Role{RoleViewer, RoleSubmitter, RoleWorker, RoleOperator, RoleDeployer, RoleAdmin}
}

// TakesPaths reports whether a role can be restricted to paths.
func (r Role) TakesPaths() bool { return r != RoleAdmin && r != RoleDeployer }

// A Grant is what the bearer of a token may do.
type Grant struct {
	Name  string   // name of the token; the actor in the audit
	Role  Role     // empty allows nothing
	Paths []string // at or below which the grant holds; everywhere when there are none
	Quota string   // as in [Token]

	// By says where the role comes from, for people, if it is not that of a token: such as rule 2 of a file. Empty for a token.
	By string

	// Owners are those whose files a deployer may change; nil for all.
	Owners []string

	// Sources are those of the events that its bearer may submit, each with what is below it. If
	// there are none, these are the sources to which no other token is bound.
	Sources []string

	quota *quota  // nil for none
	rate  float64 // of the quota, per second
}

// Has reports whether the grant includes a role. A submitter or a worker is not a viewer, because
// such programs need not see the data of others.
func (g Grant) Has(r Role) bool {
	switch g.Role {
	case RoleAdmin:
		return true
	case RoleOperator:
		return r != RoleAdmin && r != RoleDeployer
	}
	return g.Role == r
}

// Covers reports whether a path, such as pipeline/stage, is at or below one of the grant's paths.
// The empty path is everything.
func (g Grant) Covers(path string) bool {
	if len(g.Paths) == 0 {
		return true
	}
	return slices.ContainsFunc(g.Paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// Bound reports whether the grant is restricted to paths.
func (g Grant) Bound() bool { return len(g.Paths) > 0 }

// Reads reports whether the grant may read the data of a pipeline or a type of tasks. A path inside
// of a pipeline is enough, because a run shows all its handlers.
func (g Grant) Reads(name string) bool {
	return g.Covers(name) || slices.ContainsFunc(g.Paths, func(p string) bool { return strings.HasPrefix(p, name+"/") })
}

// Pipelines returns the pipelines that a bound grant may read, or nil for all.
func (g Grant) Pipelines() []string {
	var all []string
	for _, p := range g.Paths {
		all = append(all, PipelineOf(p))
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

// PipelineOf returns the pipeline of a path.
func PipelineOf(path string) string {
	pipeline, _, _ := strings.Cut(path, "/")
	return pipeline
}

// These are errors of [Access.GrantOf].
var (
	// ErrUnknownToken reports that a token does not exist or is revoked.
	ErrUnknownToken = errors.New("the token is none of this server's; it may have been revoked")

	// ErrTokenExpired reports that a token has expired.
	ErrTokenExpired = errors.New("the token has expired")
)

// A Token is the stored form of a token, without its name and its hash.
type Token struct {
	Role    Role     `json:"role" doc:"viewer, submitter, worker, operator, deployer or admin."`
	Paths   []string `json:"paths,omitempty" doc:"The paths that it is bound to; empty for everything."`
	Owners  []string `json:"owners,omitempty" doc:"The owners whose files a deployer may change; absent for all."`
	Sources []string `json:"sources,omitempty" doc:"The sources of the events that it may submit, each with what is below it; absent for all that no token is bound to."`
	Quota   string   `json:"quota,omitempty"` // how many events and tasks its bearer may hand in, such as 100/s; empty for any number

	// Certificate is a name in the client certificates of the bearer, such as URI:spiffe://example/shop. Empty for a secret.
	Certificate string `json:"certificate,omitempty" doc:"The name in client certificates that stands for the token, such as DNS:shop.internal; absent for a token with a secret."`

	Expires *time.Time `json:"expires" doc:"When it expires; null is never."`
	Revoked bool       `json:"revoked,omitempty" doc:"true if it was revoked."`
}

// A TokenView is a token in the form for people and programs.
type TokenView struct {
	Name string `json:"name" doc:"The name of the bearer in the audit."`
	Token
	State   string    `json:"state" doc:"active, expired or revoked."`
	Changed time.Time `json:"changed" doc:"When it was made or revoked."`
	By      string    `json:"by" doc:"The actor who made or revoked it."`
	Reason  string    `json:"reason"`
}

// These are the states of a token.
const (
	TokenActive  = "active"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// A liveToken is a token in a form that is fast to compare.
type liveToken struct {
	Token
	name    string
	setting store.Setting         // has the hash, and the revision that a change must name
	rate    float64               // of the quota, per second; 0 for none, and for one of a later version of the program
	quota   atomic.Pointer[quota] // found by the first request
}

// Tokens are all tokens of one revision. They never change.
type Tokens []*liveToken

// ReadTokens reads tokens in the form of the store.
func ReadTokens(set map[string]store.Setting) (Tokens, error) {
	all := Tokens{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		t := &liveToken{name: name, setting: set[name]}
		if err := json.Unmarshal(t.setting.Value, &t.Token); err != nil {
			return nil, fmt.Errorf("read token %s: %w", name, err)
		}
		if rate, err := datum.ParseRate(t.Quota); err == nil {
			t.rate = rate.PerSecond()
		}
		all = append(all, t)
	}
	return all, nil
}

// find returns the token with a hash, or nil. It compares with all tokens in constant time, so that
// the duration reveals nothing.
func (all Tokens) find(hash [sha256.Size]byte) *liveToken {
	var found *liveToken
	for _, t := range all {
		if subtle.ConstantTimeCompare(hash[:], t.setting.Hash) == 1 && !t.Revoked {
			found = t
		}
	}
	return found
}

// state reports whether the token is valid now. It is no longer valid at the moment of its expiry.
func (t *liveToken) state(now time.Time) string {
	switch {
	case t.Revoked:
		return TokenRevoked
	case t.Expires != nil && !now.Before(*t.Expires):
		return TokenExpired
	}
	return TokenActive
}

// view returns the view of the token, without its secret.
func (t *liveToken) view(now time.Time) TokenView {
	return TokenView{
		Name: t.name, Token: t.Token, State: t.state(now),
		Changed: t.setting.Changed, By: t.setting.By.Name, Reason: t.setting.By.Reason,
	}
}

// An Access decides who may call the API, and stores tokens and sessions.
type Access struct {
	Kept      store.Tokens
	Documents store.Documents
	Known     Known
	Now       func() time.Time
	Log       *slog.Logger
	Session   time.Duration // how long a session lasts at most; 0 means [SessionTime]

	// CheckPath returns an error for a path that does not exist.
	CheckPath func(path string) error

	Sharers   func() int                    // that are alive, and share quotas; 0 before that is known
	Overspent func(token string, items int) // notes what is beyond a quota

	quotas sync.Map // of tokens by name, each a *quota
}

// Known is what this node knows about the tokens in the store.
type Known interface {
	// Tokens returns the tokens that were read last, or nil.
	Tokens() *Tokens

	// Refresh reads the tokens.
	Refresh(ctx context.Context) error

	// Learn is Refresh after a change. It ignores an error.
	Learn(ctx context.Context)
}

// tokens returns the tokens that this node knows. If it knows none yet, it reads them first, so
// that nobody gets in before.
func (a *Access) tokens(ctx context.Context) (Tokens, error) {
	if all := a.Known.Tokens(); all != nil {
		return *all, nil
	}
	return a.freshTokens(ctx)
}

// Guarded reports whether a token was ever made. From then on calls need a token, even if all
// tokens are revoked or have expired.
func (a *Access) Guarded(ctx context.Context) (bool, error) {
	all, err := a.tokens(ctx)
	return len(all) > 0, err
}

// GrantOf returns what the bearer of a token with the hash may do. The error is [ErrUnknownToken],
// [ErrTokenExpired] or one of the store. The grant of an expired token has only its name.
func (a *Access) GrantOf(ctx context.Context, hash [sha256.Size]byte) (Grant, error) {
	all, err := a.tokens(ctx)
	if err != nil {
		return Grant{}, err
	}
	t := all.find(hash)
	if t == nil {
		return Grant{}, ErrUnknownToken
	}
	return a.grantOf(t)
}

// GrantOfCertificate returns what the bearer of a verified client certificate may do, by the names in it. The errors are those of
// [Access.GrantOf].
func (a *Access) GrantOfCertificate(ctx context.Context, names []string) (Grant, error) {
	all, err := a.tokens(ctx)
	if err != nil {
		return Grant{}, err
	}
	for _, t := range all {
		if !t.Revoked && t.Certificate != "" && slices.Contains(names, t.Certificate) {
			return a.grantOf(t)
		}
	}
	return Grant{}, ErrUnknownToken
}

// grantOf returns the grant of a token that is not revoked.
func (a *Access) grantOf(t *liveToken) (Grant, error) {
	if t.state(a.Now()) == TokenExpired {
		return Grant{Name: t.name}, fmt.Errorf("%w: %s was good until %s", ErrTokenExpired, t.name, t.Expires.UTC().Format(time.RFC3339))
	}
	return Grant{Name: t.name, Role: t.Role, Paths: t.Paths, Owners: t.Owners, Sources: t.Sources, Quota: t.Quota, quota: a.quotaOf(t),
		rate: t.rate}, nil
}

// RefuseSource returns why the bearer of a grant may not submit events of a source, or "". A token
// binds its sources until it is revoked, even after it has expired.
func (a *Access) RefuseSource(ctx context.Context, g Grant, source string) (string, error) {
	if len(g.Sources) > 0 {
		if slices.ContainsFunc(g.Sources, func(bound string) bool { return sourceBelow(source, bound) }) {
			return "", nil
		}
		return fmt.Sprintf("source: the token %s may submit events of %s, have %q; name one of its sources, or make a token with --source",
			g.Name, strings.Join(g.Sources, ", "), source), nil
	}
	all, err := a.tokens(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range all {
		if !t.Revoked && slices.ContainsFunc(t.Sources, func(bound string) bool { return sourceBelow(source, bound) }) {
			return fmt.Sprintf("source: %q is bound to another token; name another source, or let an admin make a token with --source %[1]q",
				source), nil
		}
	}
	return "", nil
}

// sourceBelow reports whether a source is a bound one or below it: orders binds orders/eu, too.
func sourceBelow(source, bound string) bool {
	rest, ok := strings.CutPrefix(source, bound)
	return ok && (rest == "" || strings.ContainsRune("/:#?", rune(rest[0])) || strings.ContainsRune("/:", rune(bound[len(bound)-1])))
}

// newSecret returns 32 random bytes as text.
func newSecret() string {
	random := make([]byte, sha256.Size)
	rand.Read(random) // never fails
	return "procaas_" + base64.RawURLEncoding.EncodeToString(random)
}

// An admin token may be chosen by a person, so these are its minimum requirements.
const (
	leastToken = 20 // bytes
	leastKinds = 8  // distinct bytes
)

// guessable are words that people choose as tokens. [CheckAdminToken] also tries them with common
// endings.
var guessable = []string{
	"", "a", "abc", "access", "admin", "administrator", "bearer", "changeme", "change-me", "correct-horse-battery-staple", "default", "demo", "dev",
	"example", "foo", "foobar", "guest", "hello", "hunter2", "key", "letmein", "local", "login", "master", "monkey", "operator", "pass", "passw0rd",
	"password", "procaas", "procaas-admin", "procaas_admin", "prod", "production", "qwerty", "qwertyuiop", "root", "s3cr3t", "secret", "secrettoken",
	"staging", "super-secret", "supersecret", "superuser", "system", "test", "testing", "token", "topsecret", "user", "welcome", "xxx",
}

// guessed reports whether a hash is that of a token that is easy to guess.
func guessed(hash [sha256.Size]byte) bool {
	endings := []string{"", "!", "-token", "_token", "-secret"}
	for digits := "1"; len(digits) < 10; digits += string(rune('1' + len(digits))) {
		endings = append(endings, digits)
	}
	for n := range 1000 {
		endings = append(endings, strconv.Itoa(n))
	}
	for year := 2000; year < 2100; year++ {
		endings = append(endings, strconv.Itoa(year), "-"+strconv.Itoa(year))
	}
	for _, word := range guessable {
		for _, base := range []string{word, strings.ToUpper(word), strings.ToUpper(word[:min(1, len(word))]) + word[min(1, len(word)):], word + word} {
			for _, ending := range endings {
				if sha256.Sum256([]byte(base+ending)) == hash || sha256.Sum256([]byte(base+ending+"\n")) == hash {
					return true
				}
			}
		}
	}
	return false
}

// CheckAdminToken refuses a token that could be guessed. Of a token that is given as its hash, only
// common ones can be recognised. So generate the token, and do not choose it.
func CheckAdminToken(text string) error {
	hash, err := HashToken(text)
	if err != nil {
		return err
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "sha256:") {
		if guessed(hash) {
			return fmt.Errorf("the hash is that of a token that is easy to guess; this one was made just now and is nobody's yet: %s", newSecret())
		}
		return nil
	}
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

// HashToken reads a token from a flag or a file. It is given as it is, or as its hash: sha256: with
// 64 hexadecimal digits. A plain hash without salt and rounds is enough, because nobody can guess
// 32 random bytes. A token that a person chooses must be as long.
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
