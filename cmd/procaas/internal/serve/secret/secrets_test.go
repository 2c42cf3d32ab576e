package secret

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"procaas/engine/credentials"
	"procaas/engine/model"
	"procaas/engine/secrets"
)

const strongToken = "procaas_3kYw0Qm8sVxJ5tPz7RbLc2DnFh6GaUeT4iOoWqXy1Zs"

func TestSecretsAreForWhomTheyAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"ALL": "for all", "BOTH": "for all\n", "bank/BANK": "for the bank", "bank/BOTH": "for the bank\n", "@team/TEAM": "for the team",
		"GIVEN-LATER": strongToken,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hash, err := credentials.HashToken(strongToken)
	if err != nil {
		t.Fatal(err)
	}
	s := Store{dir: dir, admin: &hash}
	for _, c := range []struct {
		use        secrets.Use
		want, fail string
	}{
		{secrets.Use{Name: "ALL", To: "bank"}, "for all", ""},
		{secrets.Use{Name: "ALL", To: "push"}, "for all", ""},
		{secrets.Use{Name: "BANK", To: "bank"}, "for the bank", ""},
		{secrets.Use{Name: "BANK", To: "push"}, "", "not kept for push: want it as push/BANK"},
		{secrets.Use{Name: "bank/BANK", To: "push"}, "", "not kept for push"},
		{secrets.Use{Name: "BANK"}, "", "not kept"},
		{secrets.Use{Name: "BANK", To: "push", Owner: "../bank"}, "", "not kept for push"},
		{secrets.Use{Name: "BOTH", To: "bank"}, "for the bank", ""},
		{secrets.Use{Name: "BOTH", To: "push"}, "for all", ""},
		{secrets.Use{Name: "TEAM", To: "push", Owner: "team"}, "for the team", ""},
		{secrets.Use{Name: "TEAM", To: "push", Owner: "others"}, "", "not kept for push"},
		{secrets.Use{Name: "GONE", To: "push"}, "", "there is no file GONE"},
		{secrets.Use{Name: "GIVEN-LATER", To: "push"}, "", "is the admin token of this server"},
	} {
		have, err := s.Value(c.use)
		if have != c.want || (err == nil) != (c.fail == "") || err != nil && (!strings.Contains(err.Error(), c.fail) ||
			model.ClassOf(err) != model.ClassCredentials && !model.IsPermanent(err)) {
			t.Errorf("%+v: want %q or %q, have %q and %v", c.use, c.want, c.fail, have, err)
		}
	}
}
