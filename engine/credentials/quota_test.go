package credentials_test

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"procaas/engine/credentials"
	"procaas/engine/store"
)

// known are tokens that are never read again.
type known credentials.Tokens

func (k *known) Tokens() *credentials.Tokens   { return (*credentials.Tokens)(k) }
func (k *known) Refresh(context.Context) error { return nil }
func (k *known) Learn(context.Context)         {}

// Each request asks for a grant, and each event for its quota. What can be read from a token is read once.
func TestGrantsAndQuotasAllocateNothing(t *testing.T) { // not parallel: it counts allocations
	hash := sha256.Sum256([]byte("secret"))
	tokens, err := credentials.ReadTokens(map[string]store.Setting{
		"shop": {Hash: hash[:], Value: []byte(`{"role": "submitter", "quota": "1000000/s"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &credentials.Access{
		Known: (*known)(&tokens), Now: time.Now, Sharers: func() int { return 1 }, Overspent: func(string, int) {},
	}
	if n := testing.AllocsPerRun(100, func() {
		g, err := a.GrantOf(t.Context(), hash)
		if err != nil || g.Quota == "" {
			t.Errorf("want a grant with a quota, have %+v, %v", g, err)
		}
		g.Spend(1)
	}); n != 0 {
		t.Errorf("want no allocations for a request, have %g", n)
	}
}
