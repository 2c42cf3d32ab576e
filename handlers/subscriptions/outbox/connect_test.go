package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/language"
	"procaas/handlers/subscriptions/outbox"
)

// TestServersInTurn passes over a server that is away, and a standby. Later the server ends under its reader, and comes back.
func TestServersInTurn(t *testing.T) {
	t.Parallel()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	r := newRigAt(t, primary.URL, outboxTable, "insert into outbox (key, n) values ('a', 1)")
	r.sub.Servers = []string{"postgres://127.0.0.1:1/postgres", "postgres://" + standby.Addr() + "/postgres"}
	r.refused("127.0.0.1:1", "it is a standby")
	r.sub.Servers = append(r.sub.Servers, "postgres://"+primary.Addr()+"/postgres")
	s := r.open()
	got := r.fetch(s)
	if err := primary.Restart(r.ctx, enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	if err := s.Done(r.ctx, got); err == nil {
		t.Error("want an error from a connection that is gone")
	}
	if _, err := s.Fetch(r.ctx); err == nil {
		t.Error("want an error from a connection that is gone")
	}
	s = r.open()
	if again := r.fetch(s); again[0].ID != got[0].ID {
		t.Errorf("want the row %s again, have %s", got[0].ID, again[0].ID)
	}
}

// TestLoginsAndEncryption connects with a password, over TLS with certificates on both sides.
func TestLoginsAndEncryption(t *testing.T) {
	t.Parallel()
	server := enginetest.OwnPostgres(t)
	r := newRigAt(t, server.URL, outboxTable)
	var hba, dir string
	if err := r.db.QueryRow(r.ctx, "select current_setting('hba_file'), current_setting('data_directory')").Scan(&hba, &dir); err != nil {
		t.Fatal(err)
	}
	issuer := enginetest.NewIssuer(t)
	certificate, key := issuer.Leaf("server", nil)
	owner, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"ssl_ca_file": issuer.CA, "ssl_cert_file": certificate, "ssl_key_file": key} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		as := owner.Sys().(*syscall.Stat_t)
		if err := os.Chown(to, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
		r.exec(fmt.Sprintf("alter system set %s = '%s'", name, to))
	}
	r.exec("alter system set ssl = on")
	r.exec(fmt.Sprintf("copy (values ('host all postgres all trust'), ('hostssl all all all scram-sha-256 clientcert=verify-ca')) to '%s'", hba))
	r.exec("select pg_reload_conf()")
	r.exec("create role procaas login superuser password 'right'")

	secret := brokertest.Secret
	client, clientKey := issuer.Leaf("client", nil)
	for name, file := range map[string]string{"ca": issuer.CA, "certificate": client, "key": clientKey} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r.secrets[name] = string(text)
	}
	r.secrets["right"], r.secrets["wrong"] = "right", "wrong"
	r.sub.Auth = &language.Login{Username: "procaas", Password: secret("right")}
	patience.Until(t, "the server to take its settings", func() bool {
		s, err := outbox.Open(r.ctx, brokertest.Options(&r.sub, r.secrets))
		if err == nil {
			s.Close()
		}
		return err != nil
	})
	r.refused("no encryption")
	r.sub.TLS = &language.Encryption{CA: secret("ca"), Certificate: secret("certificate"), Key: secret("key")}
	patience.Until(t, "the server to encrypt", func() bool {
		s, err := outbox.Open(r.ctx, brokertest.Options(&r.sub, r.secrets))
		if err == nil {
			s.Close()
		}
		return err == nil
	})
	r.open().Close()
	r.sub.Auth.Password = secret("wrong")
	r.refused("password authentication failed")
	r.sub.Auth.Password = secret("right")
	r.sub.TLS = &language.Encryption{Certificate: secret("certificate"), Key: secret("key")}
	r.refused("unknown authority")
	r.sub.TLS = &language.Encryption{CA: secret("ca")}
	r.refused("")
}
