package credentials

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// This file has the sessions of the console. A browser gets an id of its session instead of the
// token, and the store knows the token of the session, or who an add-on says it is. So all nodes know
// the session. It ends when its bearer signs out, or with the token.

const (
	// documentSession is the kind of the documents of sessions. Their names are the name of the
	// token and a number.
	documentSession = "session"

	// mostSessions bounds the sessions of one token. Documents are never removed, but reused.
	mostSessions = 64

	// SessionTime is how long a session lasts at most, if Access.Session does not say.
	SessionTime = 12 * time.Hour

	// maxIdentity bounds what an add-on says of somebody, in bytes.
	maxIdentity = 16 << 10

	// sessionTries is how often a place for a session is looked for if another session takes it.
	sessionTries = 8
)

// An Identity is a caller without a token of the server, as an add-on has identified them.
type Identity struct {
	Name   string          `json:"name"`           // the actor in the audit
	Claims json.RawMessage `json:"claims"`         // what the add-on decides by, for it alone
	Until  time.Time       `json:"until,omitzero"` // when they must be identified again
}

// An Entrance is where people sign in to the console without a token of the server.
type Entrance struct {
	Address string // on this server
	Name    string // of who signs them in, for people
}

// A Session says who has signed in: the bearer of a token with this hash, or an identity.
type Session struct {
	Token    [sha256.Size]byte
	Identity *Identity // nil for the bearer of a token
}

// A session is the stored form of a session. An ended one is empty.
type session struct {
	Secret   []byte    `json:"secret,omitempty"` // its SHA-256
	Token    []byte    `json:"token,omitempty"`  // the SHA-256 of the token
	Identity *Identity `json:"identity,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
}

// OpenSession opens a session for the bearer of a token with this name and hash. It returns the
// text that the browser sends from then on. If there are too many sessions, the oldest ends.
func (a *Access) OpenSession(ctx context.Context, name string, token [sha256.Size]byte) (string, error) {
	return a.openSession(ctx, name, name, session{Token: token[:]})
}

// OpenSessionOf opens a session for an identity. It ends with it at the latest.
func (a *Access) OpenSessionOf(ctx context.Context, who Identity) (string, error) {
	if len(who.Claims) > maxIdentity {
		return "", fmt.Errorf("open session of %s: the issuer says %d bytes about them, and a session keeps %d at most", who.Name, len(who.Claims), maxIdentity)
	}
	// The name may have any form, and that of a document may not.
	hash := sha256.Sum256([]byte(who.Name))
	return a.openSession(ctx, who.Name, "identity-"+hex.EncodeToString(hash[:16]), session{Identity: &who})
}

// openSession opens a session of somebody. Their sessions have names that begin with owner.
func (a *Access) openSession(ctx context.Context, name, owner string, s session) (string, error) {
	secret := newSecret()
	hash := sha256.Sum256([]byte(secret))
	s.Secret, s.Expires = hash[:], a.Now().Add(cmp.Or(a.Session, SessionTime)).UTC().Truncate(time.Second)
	if s.Identity != nil && s.Identity.Until.Before(s.Expires) {
		s.Expires = s.Identity.Until.UTC()
	}
	value := model.EncodeJSON(s)
	for try := 1; ; try++ {
		place, version, err := a.sessionPlace(ctx, owner)
		if err == nil {
			_, err = a.Documents.WriteDocuments(ctx, 0,
				[]store.DocumentWrite{{Kind: documentSession, Name: place, Version: version, Value: value}},
				[]store.Audited{auditSession(name, "signed in")})
		}
		if err == nil {
			return place + "/" + secret, nil
		}
		if try == sessionTries || !errors.Is(err, store.ErrConflict) {
			return "", fmt.Errorf("open session of %s: %w", name, err)
		}
	}
}

// auditSession makes the record of what the bearer of a token did.
func auditSession(name, what string) store.Audited {
	return store.Audited{Kind: store.AuditSession, Name: name, By: store.Actor{Name: name}, After: store.AuditText(what)}
}

// sessionPlace returns a document for another session of a token: a new one, or that of an ended
// session, or that of the oldest one.
func (a *Access) sessionPlace(ctx context.Context, name string) (place string, version int64, err error) {
	all, err := a.Documents.DocumentsOf(ctx, documentSession, name+"/")
	if err != nil {
		return "", 0, err
	}
	taken := map[string]bool{}
	var oldest *store.Document
	for i, d := range all {
		if a.sessionIn(d.Value) == nil {
			return d.Name, d.Version, nil
		}
		taken[d.Name] = true
		if oldest == nil || d.Changed.Before(oldest.Changed) {
			oldest = &all[i]
		}
	}
	for i := range mostSessions {
		if place := name + "/" + strconv.Itoa(i); !taken[place] {
			return place, 0, nil
		}
	}
	return oldest.Name, oldest.Version, nil
}

// sessionIn decodes a session. It returns nil if the session has ended.
func (a *Access) sessionIn(value []byte) *session {
	var s session
	if err := json.Unmarshal(value, &s); err != nil || len(s.Secret) == 0 || !a.Now().Before(s.Expires) {
		return nil
	}
	return &s
}

// SignedIn returns who has signed in with a session. The error is [ErrUnknownToken] if there is no
// such session, or one of the store.
func (a *Access) SignedIn(ctx context.Context, text string) (Session, error) {
	s, _, err := a.findSession(ctx, text)
	if err != nil {
		return Session{}, err
	}
	if s.Identity != nil {
		return Session{Identity: s.Identity}, nil
	}
	return Session{Token: [sha256.Size]byte(s.Token)}, nil
}

// CloseSession ends a session on all nodes. It is not an error if the session has ended already.
func (a *Access) CloseSession(ctx context.Context, text string) error {
	s, d, err := a.findSession(ctx, text)
	if errors.Is(err, ErrUnknownToken) {
		return nil
	}
	if err == nil {
		name := d.Name[:strings.LastIndexByte(d.Name, '/')]
		if s.Identity != nil {
			name = s.Identity.Name
		}
		_, err = a.Documents.WriteDocuments(ctx, 0,
			[]store.DocumentWrite{{Kind: documentSession, Name: d.Name, Version: d.Version, Value: []byte("{}")}},
			[]store.Audited{auditSession(name, "signed out")})
	}
	if errors.Is(err, store.ErrConflict) {
		return nil // it has ended, or another one has its place
	}
	if err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// findSession reads a session that has not ended.
func (a *Access) findSession(ctx context.Context, text string) (*session, store.Document, error) {
	cut := strings.LastIndexByte(text, '/')
	if cut < 0 || len(text) > 2*store.MaxTaskName || !tokenName.MatchString(text[:max(0, strings.IndexByte(text, '/'))]) {
		return nil, store.Document{}, ErrUnknownToken
	}
	d, err := a.Documents.Document(ctx, documentSession, text[:cut])
	if errors.Is(err, store.ErrNotFound) {
		return nil, d, ErrUnknownToken
	}
	if err != nil {
		return nil, d, fmt.Errorf("find session: %w", err)
	}
	s, hash := a.sessionIn(d.Value), sha256.Sum256([]byte(text[cut+1:]))
	if s == nil || s.Identity == nil && len(s.Token) != sha256.Size || subtle.ConstantTimeCompare(hash[:], s.Secret) != 1 {
		return nil, d, ErrUnknownToken
	}
	return s, d, nil
}
