package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/credentials"
	"procaas/engine/enginetest"
	"procaas/engine/guard"
	"procaas/engine/store"
)

func TestRolesAllowWhatTheyShould(t *testing.T) {
	t.Parallel()
	var have strings.Builder
	for _, r := range append(credentials.Roles(), "", "root") {
		fmt.Fprintf(&have, "%s:", r)
		for _, need := range credentials.Roles() {
			if (credentials.Grant{Role: r}).Has(need) {
				fmt.Fprintf(&have, " %s", need)
			}
		}
		have.WriteByte('\n')
	}
	want := `viewer: viewer
submitter: submitter
worker: worker
operator: viewer submitter worker operator
deployer: deployer
admin: viewer submitter worker operator deployer admin
:
root:
`
	if have.String() != want {
		t.Errorf("want\n%shave\n%s", want, have.String())
	}
}

func TestGrantsCoverWhatIsBelowTheirPaths(t *testing.T) {
	t.Parallel()
	g := credentials.Grant{Role: credentials.RoleOperator, Paths: []string{"order/notify", "refund"}}
	for path, want := range map[string]bool{
		"order/notify": true, "order/notify/push": true, "refund": true, "refund/pay/card": true,
		"": false, "order": false, "order/notify-all": false, "order/fetch": false, "refunds": false, "refund-2": false,
	} {
		if have := g.Covers(path); have != want {
			t.Errorf("%q: want %v, have %v", path, want, have)
		}
	}
	if !(credentials.Grant{}).Covers("") || !(credentials.Grant{}).Covers("order") {
		t.Error("want everything covered without paths")
	}
}

// code returns the code of an error about access or a path.
func code(err error) string {
	var access *credentials.AccessError
	var control *guard.ControlError
	switch {
	case errors.As(err, &access):
		return access.Code
	case errors.As(err, &control):
		return control.Code
	}
	return fmt.Sprint(err)
}

func TestTokensOpenDoorsUntilTheyEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		here, _ := r.start(three)
		there, _ := r.start(three)
		ctx, ann := context.Background(), store.Actor{Name: "ann", Reason: "new team"}
		for _, e := range []*engine.Engine{here, there} {
			if guarded, err := e.Guarded(ctx); guarded || err != nil {
				t.Fatalf("want no token at first, have %v, %v", guarded, err)
			}
		}
		made, secret, err := here.NewToken(ctx, credentials.TokenSpec{
			Name: "ci", Role: credentials.RoleOperator, Paths: []string{"work/b", "work/b", "work/a"}, Expires: time.Now().Add(10 * time.Minute),
		}, ann)
		if err != nil || made.State != credentials.TokenActive || made.By != "ann" || !strings.HasPrefix(secret, "procaas_") ||
			len(secret) < 50 {
			t.Fatalf("have %+v, a secret of %d bytes, %v", made, len(secret), err)
		}
		wantGrant := func(e *engine.Engine, want error) {
			t.Helper()
			g, err := e.GrantOf(ctx, sha256.Sum256([]byte(secret)))
			if !errors.Is(err, want) || want == nil && fmt.Sprintf("%s %s %v", g.Name, g.Role, g.Paths) != "ci operator [work/a work/b]" {
				t.Errorf("want error %v, have %v and %v", want, err, g)
			}
		}
		wantGrant(here, nil)
		pass(time.Second)
		wantGrant(there, nil)
		if guarded, _ := there.Guarded(ctx); !guarded {
			t.Error("want calls guarded from the first token on")
		}
		for _, wrong := range []string{"", "x", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret)} {
			if _, err := here.GrantOf(ctx, sha256.Sum256([]byte(wrong))); !errors.Is(err, credentials.ErrUnknownToken) {
				t.Errorf("%q: want it unknown, have %v", wrong, err)
			}
		}
		kept, _, err := r.store.Tokens.AllTokens(ctx)
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte(secret))
		if c := kept["ci"]; string(c.Hash) != string(hash[:]) || strings.Contains(string(c.Value)+string(c.Hash), secret) {
			t.Errorf("want the hash in the store alone, have %+v", c)
		}

		pass(10 * time.Minute)
		wantGrant(here, credentials.ErrTokenExpired)
		if _, secret, err = here.NewToken(ctx, credentials.TokenSpec{
			Name: "ci", Role: credentials.RoleOperator, Paths: []string{"work/a", "work/b"},
			Forever: true,
		}, ann); err != nil {
			t.Fatalf("want the name of an expired token free, have %v", err)
		}
		if _, _, err := there.NewToken(ctx, credentials.TokenSpec{Name: "ci", Role: credentials.RoleAdmin}, ann); code(err) != "token_exists" {
			t.Errorf("want the name taken, have %v", err)
		}
		pass(20 * time.Minute)
		wantGrant(there, nil)
		if v, err := there.RevokeToken(ctx, "ci", store.Actor{Name: "bob"}); err != nil || v.State != credentials.TokenRevoked {
			t.Errorf("have %+v, %v", v, err)
		}
		wantGrant(there, credentials.ErrUnknownToken)
		pass(time.Second)
		wantGrant(here, credentials.ErrUnknownToken)
		for name, message := range map[string]string{"ci": "is revoked already", "cI": "there is no token cI"} {
			if _, err := here.RevokeToken(ctx, name, ann); code(err) != "token_not_found" || !strings.Contains(err.Error(), message) {
				t.Errorf("want %s, have %v", message, err)
			}
		}
		if guarded, _ := here.Guarded(ctx); !guarded {
			t.Error("want calls guarded although the last token is revoked")
		}
		list, err := here.Audit(ctx, store.AuditFilter{Kind: store.AuditToken, Limit: 10})
		if err != nil || len(list) != 3 || list[0].By != "bob" || strings.Contains(fmt.Sprint(list), "hash") {
			t.Errorf("have audit %+v, %v", list, err)
		}
	})
}

func TestNodesShareTheQuotaOfASubmitter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		here, _ := r.start(three)
		there, _ := r.start(three)
		ctx := context.Background()
		_, secret, err := here.NewToken(ctx, credentials.TokenSpec{Name: "shop", Role: credentials.RoleSubmitter, Quota: "10/s"},
			store.Actor{Name: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second) // both nodes know of each other
		spend := func(e *engine.Engine, items int) time.Duration {
			g, err := e.GrantOf(ctx, sha256.Sum256([]byte(secret)))
			if err != nil {
				t.Fatal(err)
			}
			return g.Spend(items)
		}
		taken := 0
		for range 100 { // 10 s
			for _, e := range []*engine.Engine{here, there} {
				for spend(e, 1) == 0 {
					taken++
				}
			}
			pass(100 * time.Millisecond)
		}
		if taken < 100 || taken > 112 {
			t.Errorf("want 100 events in 10 s, and a second's worth ahead, have %d", taken)
		}
		began := time.Now()
		if over := here.Backlog().Refused; len(over) != 1 || over[0].Token != "shop" || over[0].Items < 10 || !over[0].Since.Before(began) {
			t.Errorf("want what is over the quota of shop, have %+v", over)
		}
		pass(2 * time.Minute)
		if over := here.Backlog().Refused; len(over) != 0 {
			t.Errorf("want nothing over a quota, have %+v", over)
		}
		if wait := spend(here, 50); wait != 0 {
			t.Errorf("want a batch taken as a whole, have to wait %s", wait)
		}
		if wait := spend(here, 1); wait != 9*time.Second {
			t.Errorf("want 9 s until the batch of 10 s is within the quota, have %s", wait)
		}
	})
}

func TestTokensThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.engine(r.store, three)
	for name, c := range map[string]struct {
		spec credentials.TokenSpec
		code string
		want string
	}{
		"no name":  {credentials.TokenSpec{Role: credentials.RoleViewer}, "invalid_token", "name: want 1 to 64 letters"},
		"odd name": {credentials.TokenSpec{Name: "a b", Role: credentials.RoleViewer}, "invalid_token", "name: want"},
		"somebody's name": {
			credentials.TokenSpec{Name: "Anonymous", Role: credentials.RoleViewer},
			"invalid_token",
			"the audit calls somebody else",
		},
		"no role":           {credentials.TokenSpec{Name: "a"}, "invalid_token", "role: want viewer, submitter, worker, operator, deployer or admin"},
		"odd role":          {credentials.TokenSpec{Name: "a", Role: "root"}, "invalid_token", `have "root"`},
		"quota of a viewer": {credentials.TokenSpec{Name: "a", Role: credentials.RoleViewer, Quota: "1/s"}, "invalid_token", "only submitters"},
		"odd quota": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleSubmitter, Quota: "many"},
			"invalid_token",
			"quota: want a rate",
		},
		"many paths": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleOperator, Paths: make([]string, 101)},
			"invalid_token",
			"at most 100",
		},
		"unknown path": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleOperator, Paths: []string{"work/bb"}},
			"unknown_control_path",
			"did you mean",
		},
		"stage to submit": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleSubmitter, Paths: []string{"work/b"}},
			"invalid_token",
			"want one such as work, have work/b",
		},
		"past": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleViewer, Expires: time.Now().Add(-time.Second)},
			"invalid_token",
			"want a time to come",
		},
		"far": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleViewer, Expires: time.Now().AddDate(20, 0, 0)},
			"invalid_token",
			"within ten years",
		},
		"both": {
			credentials.TokenSpec{Name: "a", Role: credentials.RoleViewer, Expires: time.Now().Add(time.Hour), Forever: true},
			"invalid_token", "have both",
		},
	} {
		_, secret, err := e.NewToken(t.Context(), c.spec, store.Actor{Name: "ann"})
		if code(err) != c.code || !strings.Contains(err.Error(), c.want) || secret != "" {
			t.Errorf("%s: want %s with %q, have %v", name, c.code, c.want, err)
		}
	}
	if list, err := e.Tokens(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("want no token made, have %v, %v", list, err)
	}
}

func TestHashToken(t *testing.T) {
	t.Parallel()
	want := sha256.Sum256([]byte("s3cret"))
	for text, good := range map[string]bool{
		"s3cret": true, " s3cret\n": true, fmt.Sprintf("sha256:%x\n", want): true, fmt.Sprintf("sha256:%X", want): true,
		"": false, " ": false, "a b": false, "sha256:": false, "sha256:12": false, "sha256:" + strings.Repeat("x", 64): false, "one\ntwo": false,
	} {
		if have, err := credentials.HashToken(text); (err == nil) != good || good && have != want {
			t.Errorf("%q: have %x, %v", text, have, err)
		}
	}
}

func BenchmarkGrant(b *testing.B) {
	e, err := engine.New(engine.Options{Store: enginetest.NewMemory().Ports(), Bundle: &tree.Bundle{}})
	if err != nil {
		b.Fatal(err)
	}
	var secret string
	for i := range 20 {
		if _, secret, err = e.NewToken(b.Context(), credentials.TokenSpec{Name: fmt.Sprint(i), Role: credentials.RoleViewer},
			store.Actor{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := e.GrantOf(b.Context(), sha256.Sum256([]byte(secret))); err != nil {
			b.Fatal(err)
		}
	}
}
