package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/credentials"
	"procaas/engine/store"
)

func TestSessionsEndOnAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		one, _ := r.start(three)
		other, _ := r.start(three)
		const lasts = 10 * time.Minute // nodes beat all the while
		one.Access.Session, other.Access.Session = lasts, lasts
		_, secret, err := one.NewToken(ctx, credentials.TokenSpec{Name: "ann", Role: credentials.RoleAdmin, Forever: true},
			store.Actor{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		token := sha256.Sum256([]byte(secret))
		begin := func() string {
			t.Helper()
			session, err := one.OpenSession(ctx, "ann", token)
			if err != nil || strings.Contains(session, secret) {
				t.Fatalf("have session %q, %v", session, err)
			}
			return session
		}
		want := func(what, session string, good bool) {
			t.Helper()
			for _, e := range []*engine.Engine{one, other} {
				have, err := e.SignedIn(ctx, session)
				if good && (err != nil || have.Token != token) || !good && !errors.Is(err, credentials.ErrUnknownToken) {
					t.Errorf("%s: want good %v, have %v", what, good, err)
				}
			}
		}
		first, second := begin(), begin()
		want("a new one", first, true)
		want("another one", second, true)
		for _, guess := range []string{
			"", "/", "ann", "ann/0", "ann/0/", first + "x", first[:len(first)-1], "ann/9/" + strings.Repeat("x", 50),
			"../0/x", strings.Repeat("ann/", 1000), secret,
		} {
			want("a guess: "+guess, guess, false)
		}
		if err := other.CloseSession(ctx, first); err != nil {
			t.Fatal(err)
		}
		want("signed out", first, false)
		want("not the one that signed out", second, true)
		if err := one.CloseSession(ctx, first); err != nil {
			t.Errorf("want signing out twice to be fine, have %v", err)
		}
		pass(lasts - time.Second)
		want("nearly over", second, true)
		pass(time.Second)
		want("over", second, false)

		// There are so many and no more, and the oldest one ends for another.
		var all []string
		for range 65 {
			all = append(all, begin())
			pass(time.Millisecond)
		}
		want("the oldest of too many", all[0], false)
		want("the second oldest", all[1], true)
		docs, err := r.store.Documents.DocumentsOf(ctx, "session", "")
		if err != nil || len(docs) != 64 {
			t.Errorf("want 64 documents, have %d, %v", len(docs), err)
		}
		for _, d := range docs {
			if strings.Contains(string(d.Value), secret) || strings.Contains(string(d.Value), all[64]) {
				t.Errorf("want only hashes stored, have %s", d.Value)
			}
		}
	})
}
