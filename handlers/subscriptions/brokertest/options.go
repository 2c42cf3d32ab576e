package brokertest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"testing"

	"procaas/dsl/expr"
	"procaas/engine/enginetest"
	"procaas/handlers/subscriptions/broker"
	"procaas/handlers/subscriptions/language"
)

// Options are those of a node that has secrets.
func Options(s *language.Subscription, secrets map[string]string) broker.Options {
	return broker.Options{Subscription: s, Log: slog.New(slog.DiscardHandler), Connection: &broker.Connection{
		Connection: s.Connection(), Client: "procaas-" + s.ID, Dial: (&net.Dialer{}).DialContext,
		Secret: func(name string) (string, error) {
			if text, ok := secrets[name]; ok {
				return text, nil
			}
			return "", fmt.Errorf("there is no secret %s", name)
		},
	}}
}

// Secret refers to a secret, as files do.
func Secret(name string) *expr.Value { return &expr.Value{Kind: expr.ValueSecret, Secret: name} }

// Encryption returns how a broker on loopback encrypts, which wants certificates of its clients, and the secrets ca, certificate and key of
// a client.
func Encryption(t testing.TB) (server *tls.Config, secrets map[string]string) {
	t.Helper()
	issuer := enginetest.NewIssuer(t)
	own, err := tls.LoadX509KeyPair(issuer.Leaf("broker", nil))
	if err != nil {
		t.Fatal(err)
	}
	secrets = map[string]string{}
	certificate, key := issuer.Leaf("client", nil)
	for name, file := range map[string]string{"ca": issuer.CA, "certificate": certificate, "key": key} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = string(text)
	}
	server = &tls.Config{
		Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12,
	}
	server.ClientCAs.AppendCertsFromPEM([]byte(secrets["ca"]))
	return server, secrets
}
