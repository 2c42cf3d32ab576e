package sql_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/secrets"
	"procaas/handlers/sql"
)

// secretive returns a server that lets one user in over TLS only, with a password. It has the certificate of the issuer.
func secretive(t *testing.T, issuer *enginetest.Issuer) *enginetest.Cluster {
	t.Helper()
	server := enginetest.OwnPostgres(t)
	conn, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	cert, key := issuer.Leaf("server", nil)
	var data string
	if err := conn.QueryRow(t.Context(), "show data_directory").Scan(&data); err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		return fmt.Sprintf("copy (select unnest(string_to_array($$%s$$, chr(10)))) to program 'umask 077; cat > %s/%s'", strings.TrimSpace(string(text)), data, name)
	}
	for _, statement := range []string{
		"create role charger superuser login password 'first'",
		write("test.crt", read(t, cert)), write("test.key", read(t, key)),
		write("pg_hba.conf", []byte("hostssl all charger all scram-sha-256\nhost all postgres all trust")),
		"alter system set ssl = on", "alter system set ssl_cert_file = 'test.crt'", "alter system set ssl_key_file = 'test.key'",
		"select pg_reload_conf()",
	} { // the programs write as the server's account, and for it alone
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	patience.Until(t, "the server to read its settings", func() bool {
		c, err := pgx.Connect(t.Context(), server.URL)
		if err != nil {
			return false
		}
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		ssl := ""
		return c.QueryRow(t.Context(), "show ssl").Scan(&ssl) == nil && ssl == "on"
	})
	return server
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestNodeProvesWhoItIs connects with a password over TLS. A wrong certificate, password or declaration are told apart, and a new
// password needs no restart.
func TestNodeProvesWhoItIs(t *testing.T) {
	t.Parallel()
	issuer, other := enginetest.NewIssuer(t), enginetest.NewIssuer(t)
	server := secretive(t, issuer)
	_, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	var password atomic.Value
	password.Store("first")
	n := &node{t: t, metrics: prometheus.NewRegistry()}
	n.pool = sql.NewPool(sql.Options{
		Dial: (&net.Dialer{}).DialContext, Metrics: n.metrics,
		Secrets: func(u secrets.Use) (string, error) {
			if u.To != "billing" || u.Owner != "team-billing" {
				return "", fmt.Errorf("want a secret for the database of team-billing, have %+v", u)
			}
			if u.Name == "billing/nothing" {
				return "", model.WithClass(model.ClassCredentials, errors.New("PROCAAS_SECRET_BILLING_NOTHING is not set"))
			}
			return map[string]string{
				"billing/password": password.Load().(string), "billing/ca": string(read(t, issuer.CA)), "billing/other": string(read(t, other.CA)),
			}[u.Name], nil
		},
	})
	t.Cleanup(n.pool.Close)
	address := (&url.URL{Scheme: "postgres", User: url.User("charger"), Host: server.Addr(), Path: "/postgres"}).String()
	const with = ", owner: team-billing, password: !secret billing/password"
	for _, test := range []struct{ address, with, password, class string }{
		{address, with + ", tls: {ca: !secret billing/ca}", "first", "other"}, // no error
		{address, with + ", tls: {ca: !secret billing/other}", "first", "certificate"},
		{address, with + ", tls: {}", "first", "certificate"},
		{address, with + ", tls: {ca: !secret billing/nothing}", "first", "credentials"},
		{address, with + ", tls: {ca: !secret billing/password}", "first", "credentials"}, // no certificate
		{strings.Replace(address, "127.0.0.1:"+port, "localhost:"+port, 1), with + ", tls: {ca: !secret billing/ca}", "first", "certificate"},
		{address, with + ", max-connections: 9", "first", "credentials"}, // without TLS
		{address, with + ", max-connections: 5, tls: {ca: !secret billing/ca}", "wrong", "credentials"},
		{address, with + ", max-connections: 5, tls: {ca: !secret billing/ca}", "first", "other"},
	} {
		password.Store(test.password)
		n.bundle = bundle(t, test.address, test.with)
		have, err := n.read("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
		if (err == nil) != (test.class == "other") || model.ClassOf(err) != test.class || model.IsPermanent(err) {
			t.Errorf("%s%s and %q: want the class %s, have %v (%v)", test.address, test.with, test.password, test.class, have, err)
		}
		if err != nil && strings.Contains(err.Error(), test.password) {
			t.Errorf("an error shows the password: %v", err)
		}
		if err == nil && fmt.Sprint(have) != "map[rows:[map[ssl:true]] rows-affected:1]" {
			t.Errorf("want an encrypted connection, have %v", have)
		}
	}
}
