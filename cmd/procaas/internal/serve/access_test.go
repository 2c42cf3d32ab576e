package serve

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"testing"
)

var someToken = regexp.MustCompile(`procaas_[A-Za-z0-9_-]{43}`)

// A refusal offers a token that works.
func TestOfferedAdminTokenIsStrong(t *testing.T) {
	t.Parallel()
	f := AccessFlags{Token: "secret", Open: []string{"none"}}
	_, err := f.options("127.0.0.1:0")
	if err == nil || someToken.FindString(err.Error()) == "" {
		t.Fatalf("want a token offered, have %v", err)
	}
	f.Token = someToken.FindString(err.Error())
	if o, err := f.options("127.0.0.1:0"); err != nil || o.Token != f.Token {
		t.Errorf("want the offered token taken, have %v", err)
	}
}

func TestNoneOpensNothing(t *testing.T) {
	t.Parallel()
	f := AccessFlags{Token: "procaas_3kYw0Qm8sVxJ5tPz7RbLc2DnFh6GaUeT4iOoWqXy1Zs", Open: []string{"none"}}
	o, err := f.options("0.0.0.0:80")
	if err != nil || len(o.Open) != 0 {
		t.Errorf("want nothing open, have %v, %v", o.Open, err)
	}
}

// A hash hides a token, but not one that everybody tries first.
func TestHashesOfGuessableTokensAreRefused(t *testing.T) {
	t.Parallel()
	const strong = "procaas_3kYw0Qm8sVxJ5tPz7RbLc2DnFh6GaUeT4iOoWqXy1Zs"
	for _, token := range []string{"admin", "secret123", "Procaas2026", "passwordpassword", "changeme\n", strong} {
		f := AccessFlags{Token: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))), Open: []string{"none"}}
		if _, err := f.options("127.0.0.1:0"); (err == nil) != (token == strong) {
			t.Errorf("%q: have %v", token, err)
		}
	}
}
