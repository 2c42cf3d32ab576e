package addon

import (
	"strings"
	"testing"

	"procaas/handlers/signon"
	"procaas/handlers/signon/remote"
)

// A person names one of several issuers, and need not name the only one. Commands that know only one get the first one for them.
func TestLoginChoosesAnIssuer(t *testing.T) {
	t.Parallel()
	web := &signon.Issuer{ID: "web", Issuer: "https://web.example"}
	staff := &signon.Issuer{ID: "staff", Issuer: "https://staff.example", Login: &signon.Client{ID: "cli"}}
	guests := &signon.Issuer{ID: "guests", Issuer: "https://guests.example", Login: &signon.Client{ID: "cli"}}
	for name, c := range map[string]struct {
		all      []*signon.Issuer
		id, want string
	}{
		"only one for it":     {[]*signon.Issuer{web, staff}, "", "https://staff.example"},
		"named":               {[]*signon.Issuer{web, staff, guests}, "guests", "https://guests.example"},
		"several":             {[]*signon.Issuer{web, staff, guests}, "", "add --issuer with one of staff, guests"},
		"unknown":             {[]*signon.Issuer{web, staff, guests}, "web", `want one of staff, guests, have "web"`},
		"none":                {[]*signon.Issuer{web}, "", "names no client for the command line"},
		"the only one by one": {[]*signon.Issuer{staff}, "staff", "https://staff.example"},
	} {
		got, err := chosen(signOnOf(c.all), c.id, "https://procaas.example")
		have := got.Issuer
		if err != nil {
			have = err.Error()
		}
		if !strings.Contains(have, c.want) {
			t.Errorf("%s: have %s, want %s", name, have, c.want)
		}
	}
	if on := signOnOf([]*signon.Issuer{web, staff, guests}); on.Client != "cli" || on.Issuer.Issuer != "https://staff.example" || len(on.Issuers) != 3 {
		t.Errorf("have %+v, want the first one with a client", on)
	}
	if got, err := chosen(remote.SignOn{Issuer: remote.Issuer{Issuer: "https://old.example", Client: "cli"}}, "", "x"); err != nil || got.Client != "cli" {
		t.Errorf("an older server: have %+v, %v", got, err)
	}
}
