package credentials

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/engine/model"
	"procaas/engine/store"
)

// This file makes and revokes tokens. access.go decides what they allow.

// An AccessError says why a token cannot be made or revoked.
type AccessError struct {
	Code    string // stable: invalid_token, token_exists, token_not_found
	Message string
}

// Error implements error.
func (e *AccessError) Error() string { return e.Message }

// These are the codes of an [AccessError].
const (
	codeInvalidToken  = "invalid_token"
	codeTokenExists   = "token_exists"
	codeTokenNotFound = "token_not_found"
)

// Tokens lists the tokens by name, including those that are no longer valid.
func (a *Access) Tokens(ctx context.Context) ([]TokenView, error) {
	all, err := a.freshTokens(ctx)
	if err != nil {
		return nil, err
	}
	out, now := []TokenView{}, a.Now()
	for _, t := range all {
		out = append(out, t.view(now))
	}
	return out, nil
}

// A TokenSpec describes a new token.
type TokenSpec struct {
	Name    string    // what the audit calls its bearer; 1 to 64 characters
	Role    Role      // it is needed
	Paths   []string  // what it is bound to; everything when empty
	Owners  []string  // as in [Grant]; for deployers
	Sources []string  // as in [Grant]; for submitters and operators
	Quota   string    // as in [Token]; for submitters only
	Expires time.Time // in DefaultTokenTime when zero
	Forever bool      // it never expires

	// Certificate is as in [Token].
	Certificate string
}

// defaultTokenTime is the default lifetime of a token.
const defaultTokenTime = 90 * 24 * time.Hour

const (
	longestToken = 10 * 366 * 24 * time.Hour // use Forever for a longer time
	maxTokens    = 1000                      // a call compares its token with all of them
	maxPaths     = 100                       // of one token
	maxSources   = 100                       // of one token
	maxSource    = 256                       // bytes
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// actors are reserved actor names of the audit. A token with such a name would look like the engine
// itself, or like a caller without a token.
var actors = []string{"admin", "anonymous", "dev", "engine", "procaas"}

// NewToken makes a token and returns its secret, which cannot be read again. A name may be reused
// after its token was revoked or has expired. A token for a certificate has no secret. The error is an [*AccessError], or a
// [*guard.ControlError] for an unknown path, if the token is refused.
func (a *Access) NewToken(ctx context.Context, spec TokenSpec, by store.Actor) (v TokenView, secret string, err error) {
	all, err := a.freshTokens(ctx)
	if err != nil {
		return v, "", err
	}
	t, err := a.checkToken(spec)
	if err != nil {
		return v, "", err
	}
	before := int64(0)
	if old := all.named(spec.Name); old != nil {
		if old.state(a.Now()) == TokenActive {
			return v, "", &AccessError{codeTokenExists, fmt.Sprintf("there is a token %s; revoke it first, or choose another name", spec.Name)}
		}
		before = old.setting.Revision
	} else if len(all) >= maxTokens {
		return v, "", &AccessError{codeInvalidToken, fmt.Sprintf("there are %d tokens, and more would make each call slow; use the name of "+
			"one that is revoked or has expired", len(all))}
	}
	if other := all.certified(spec.Certificate); other != nil && other.name != spec.Name {
		return v, "", &AccessError{codeTokenExists, fmt.Sprintf("the token %s is for certificates with %s; revoke it first", other.name,
			spec.Certificate)}
	}
	secret = newSecret()
	hash := sha256.Sum256([]byte(secret))
	if spec.Certificate != "" {
		secret = "" // nobody knows it
	}
	v, err = a.storeToken(ctx, spec.Name, t, hash[:], before, by)
	return v, secret, err
}

// RevokeToken invalidates a token on all nodes within a second. The error is an [*AccessError] if
// there is no such token.
func (a *Access) RevokeToken(ctx context.Context, name string, by store.Actor) (TokenView, error) {
	all, err := a.freshTokens(ctx)
	if err != nil {
		return TokenView{}, err
	}
	t := all.named(name)
	if t == nil || t.Revoked {
		return TokenView{}, all.unknown(name)
	}
	revoked := t.Token
	revoked.Revoked = true
	return a.storeToken(ctx, name, revoked, nil, t.setting.Revision, by)
}

// storeToken writes a token if its revision is the one before. So of two concurrent changes of a
// token, only one succeeds. Without a hash the token is invalid.
func (a *Access) storeToken(ctx context.Context, name string, t Token, hash []byte, before int64, by store.Actor) (TokenView, error) {
	_, err := a.Kept.SetToken(ctx, name, model.EncodeJSON(t), hash, before, by)
	if errors.Is(err, store.ErrConflict) {
		return TokenView{}, &AccessError{codeTokenExists, fmt.Sprintf("somebody else has just changed the token %s; list the tokens again",
			name)}
	}
	if err != nil {
		return TokenView{}, fmt.Errorf("set token %s: %w", name, err)
	}
	a.Known.Learn(ctx)
	a.Log.Info("token changed", "token", name, "role", t.Role, "revoked", t.Revoked, "by", by.Name, "reason", by.Reason)
	// The precision of the store; the next list of tokens has its own time.
	now := a.Now().UTC().Truncate(time.Millisecond)
	return (&liveToken{Token: t, name: name, setting: store.Setting{Changed: now, By: by}}).view(now), nil
}

// freshTokens reads the tokens from the store. A change must not be based on what this node knew a
// moment ago.
func (a *Access) freshTokens(ctx context.Context) (Tokens, error) {
	if err := a.Known.Refresh(ctx); err != nil {
		return nil, err
	}
	return *a.Known.Tokens(), nil
}

func (all Tokens) named(name string) *liveToken {
	for _, t := range all {
		if t.name == name {
			return t
		}
	}
	return nil
}

// certified returns the token for a name in certificates, or nil.
func (all Tokens) certified(name string) *liveToken {
	for _, t := range all {
		if name != "" && t.Certificate == name && !t.Revoked {
			return t
		}
	}
	return nil
}

// longestCertificateName is a name in a certificate at its longest, in characters.
const longestCertificateName = 256

// certificateName is the syntax of names in certificates. A bound of the length here would make an automaton of megabytes,
// at each start of the program.
var certificateName = regexp.MustCompile(`^(CN|DNS|EMAIL|URI):[^\s\pC]+$`)

// unknown returns the error of a token that cannot be revoked because it does not exist.
func (all Tokens) unknown(name string) *AccessError {
	if all.named(name) != nil {
		return &AccessError{codeTokenNotFound, fmt.Sprintf("the token %s is revoked already", name)}
	}
	var known []string
	for _, t := range all {
		if !t.Revoked {
			known = append(known, t.name)
		}
	}
	message := fmt.Sprintf("there is no token %s", name)
	if near := diag.Suggest(name, known); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	return &AccessError{codeTokenNotFound, message}
}

// checkToken makes a token from its description.
func (a *Access) checkToken(spec TokenSpec) (Token, error) {
	invalid := func(format string, args ...any) (Token, error) {
		return Token{}, &AccessError{codeInvalidToken, fmt.Sprintf(format, args...)}
	}
	switch {
	case !tokenName.MatchString(spec.Name):
		return invalid("name: want 1 to 64 letters, digits, and . _ @ - after the first, have %q", spec.Name)
	case slices.Contains(actors, strings.ToLower(spec.Name)):
		return invalid("name: the audit calls somebody else %s; choose another name", spec.Name)
	case !slices.Contains(Roles(), spec.Role):
		return invalid("role: want viewer, submitter, worker, operator, deployer or admin, have %q", spec.Role)
	case len(spec.Paths) > 0 && !spec.Role.TakesPaths():
		return invalid("paths: the role %s holds everywhere; the other roles may be bound to paths", spec.Role)
	case len(spec.Paths) > maxPaths:
		return invalid("paths: want at most %d, have %d", maxPaths, len(spec.Paths))
	case len(spec.Owners) > 0 && spec.Role != RoleDeployer:
		return invalid("owners: only deployers are bound to owners, not the role %s", spec.Role)
	case len(spec.Owners) > maxPaths || slices.Contains(spec.Owners, ""):
		return invalid("owners: want at most %d, none of them empty, have %q", maxPaths, spec.Owners)
	case len(spec.Sources) > 0 && spec.Role != RoleSubmitter && spec.Role != RoleOperator:
		return invalid("sources: only submitters and operators are bound to sources, not the role %s", spec.Role)
	case len(spec.Sources) > maxSources:
		return invalid("sources: want at most %d, have %d", maxSources, len(spec.Sources))
	case spec.Quota != "" && spec.Role != RoleSubmitter:
		return invalid("quota: only submitters have one, not the role %s", spec.Role)
	case spec.Certificate != "" && (utf8.RuneCountInString(spec.Certificate) > longestCertificateName || !certificateName.MatchString(spec.Certificate)):
		return invalid("certificate: want a name such as DNS:shop.internal, URI:spiffe://example/shop, EMAIL:ci@example.com or CN:shop, have %q",
			spec.Certificate)
	case spec.Forever && !spec.Expires.IsZero():
		return invalid("want expires or forever, have both")
	}
	for _, source := range spec.Sources {
		switch {
		case source == "" || len(source) > maxSource || strings.ContainsFunc(source, func(c rune) bool { return !unicode.IsPrint(c) }):
			return invalid("sources: want 1 to %d printable bytes such as orders, have %q", maxSource, source)
		case model.IsReservedSource(source + "/"):
			return invalid("sources: %q is reserved for the engine's own events and for people in the console", source)
		}
	}
	for _, path := range spec.Paths {
		if spec.Role == RoleWorker { // its types need not be pipelines
			if path == "" || len(path) > store.MaxTaskName || strings.Contains(path, "/") {
				return invalid("paths: a worker is bound to types of tasks; want one such as thumbnails, have %q", path)
			}
			continue
		}
		if err := a.CheckPath(path); err != nil {
			return Token{}, err
		}
		// After the check of the path, so that a typing mistake is reported as one.
		if spec.Role == RoleSubmitter && strings.Contains(path, "/") {
			return invalid("paths: events are submitted to a whole pipeline; want one such as %s, have %s", path[:strings.Index(path, "/")], path)
		}
	}
	if spec.Quota != "" {
		if _, err := datum.ParseRate(spec.Quota); err != nil {
			return invalid("quota: %s", err)
		}
	}
	t := Token{
		Role: spec.Role, Quota: spec.Quota, Paths: slices.Compact(slices.Sorted(slices.Values(spec.Paths))),
		Sources: slices.Compact(slices.Sorted(slices.Values(spec.Sources))), Owners: slices.Compact(slices.Sorted(slices.Values(spec.Owners))),
	}
	t.Certificate = spec.Certificate
	if spec.Forever {
		return t, nil
	}
	now := a.Now()
	expires := spec.Expires
	if expires.IsZero() {
		expires = now.Add(defaultTokenTime)
	}
	switch {
	case !expires.After(now):
		return invalid("expires: want a time to come, have %s", expires.UTC().Format(time.RFC3339))
	case expires.Sub(now) > longestToken:
		return invalid("expires: want a time within ten years, have %s; say forever when you mean it", expires.UTC().Format(time.RFC3339))
	}
	expires = expires.UTC().Truncate(time.Second)
	t.Expires = &expires
	return t, nil
}

// documentRefusal is the kind of the documents with the time of a token's last refused call. Their
// name is that of the token.
const documentRefusal = "refusal"

// AuditRefusal records that the bearer of a token has tried a call without permission.
func (a *Access) AuditRefusal(ctx context.Context, by store.Actor, call, detail string) error {
	after := model.EncodeJSON(struct {
		Detail string `json:"detail"`
	}{detail})
	last := []store.DocumentWrite{{Kind: documentRefusal, Name: by.Name, Version: store.AnyVersion, Value: after}}
	_, err := a.Documents.WriteDocuments(ctx, 0, last, []store.Audited{{Kind: store.AuditRefusal, Name: call, By: by, After: after}})
	return err
}
