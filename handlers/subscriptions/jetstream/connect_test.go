package jetstream_test

import (
	"crypto/x509"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"procaas/handlers/subscriptions/brokertest"
	"procaas/handlers/subscriptions/jetstream"
	"procaas/handlers/subscriptions/language"
)

// reads reads a message, and refused wants an error that says why there is none.
func (r *rig) reads() {
	r.t.Helper()
	r.send("orders.eu", 0, 1)
	s := r.open()
	r.done(s, r.read(s, 0, 1))
}

func (r *rig) refused(why string) {
	r.t.Helper()
	s, err := jetstream.Open(r.ctx, r.options())
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		r.t.Errorf("want an error with %q, have %v", why, err)
	}
}

// TestEncryption connects to a server that wants TLS and certificates of its clients.
func TestEncryption(t *testing.T) {
	t.Parallel()
	config, secrets := brokertest.Encryption(t)
	client := config.Clone()
	client.RootCAs = x509.NewCertPool()
	client.RootCAs.AppendCertsFromPEM([]byte(secrets["ca"]))
	r := rigAt(t, brokertest.StartGuardedNATS(t, server.Options{TLS: true, TLSVerify: true, TLSConfig: config}, nats.Secure(client)), natsjs.StreamConfig{})
	r.secrets = secrets
	secret := brokertest.Secret
	r.sub.TLS = &language.Encryption{CA: secret("ca"), Certificate: secret("certificate"), Key: secret("key")}
	r.reads()
	r.sub.TLS = &language.Encryption{CA: secret("ca")}
	r.refused("") // the server may tell why, or be gone before
	r.sub.TLS = &language.Encryption{Certificate: secret("certificate"), Key: secret("key")}
	r.refused("unknown authority")
	r.sub.TLS, r.sub.Servers = nil, []string{strings.Replace(r.nats.URL(), "nats:", "tls:", 1)}
	r.refused("unknown authority") // the scheme alone asks for TLS, too
	secrets["ca"] = "no certificate"
	r.sub.TLS = &language.Encryption{CA: secret("ca")}
	r.refused("no certificate in PEM")
}

// TestPasswordsAndTokens connects with each, and with wrong ones.
func TestPasswordsAndTokens(t *testing.T) {
	t.Parallel()
	secret := brokertest.Secret
	for name, c := range map[string]struct {
		options      server.Options
		client       nats.Option
		right, wrong *language.Login
	}{
		"password": {
			server.Options{Username: "eve", Password: "secret"}, nats.UserInfo("eve", "secret"),
			&language.Login{Username: "eve", Password: secret("right")}, &language.Login{Username: "eve", Password: secret("wrong")},
		},
		"token": {
			server.Options{Authorization: "secret"}, nats.Token("secret"),
			&language.Login{Token: secret("right")}, &language.Login{Token: secret("wrong")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rigAt(t, brokertest.StartGuardedNATS(t, c.options, c.client), natsjs.StreamConfig{})
			r.secrets = map[string]string{"right": "secret", "wrong": "guess"}
			r.sub.Auth = c.right
			r.reads()
			r.sub.Auth = c.wrong
			r.refused("Authorization Violation")
			r.sub.Auth = nil
			r.refused("Authorization Violation")
			r.sub.Auth = &language.Login{Token: secret("other")}
			r.refused("there is no secret other")
		})
	}
}

// TestCredentialsFiles connects with the text of a credentials file, which an operator has signed.
func TestCredentialsFiles(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func(kind nkeys.PrefixByte) (nkeys.KeyPair, string) {
		t.Helper()
		pair, err := nkeys.CreatePair(kind)
		must(err)
		public, err := pair.PublicKey()
		must(err)
		return pair, public
	}
	operatorKey, operatorName := key(nkeys.PrefixByteOperator)
	accountKey, accountName := key(nkeys.PrefixByteAccount)
	_, systemName := key(nkeys.PrefixByteAccount)
	userKey, userName := key(nkeys.PrefixByteUser)
	operator := jwt.NewOperatorClaims(operatorName)
	_, err := operator.Encode(operatorKey)
	must(err)
	resolver := &server.MemAccResolver{}
	for _, name := range []string{accountName, systemName} {
		account := jwt.NewAccountClaims(name)
		if name == accountName {
			account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
		}
		signed, err := account.Encode(operatorKey)
		must(err)
		must(resolver.Store(name, signed))
	}
	signed, err := jwt.NewUserClaims(userName).Encode(accountKey)
	must(err)
	seed, err := userKey.Seed()
	must(err)
	file, err := jwt.FormatUserConfig(signed, seed)
	must(err)
	o := server.Options{TrustedOperators: []*jwt.OperatorClaims{operator}, AccountResolver: resolver, SystemAccount: systemName}
	r := rigAt(t, brokertest.StartGuardedNATS(t, o, nats.UserCredentialBytes(file)), natsjs.StreamConfig{})
	r.secrets = map[string]string{"file": string(file), "broken": "no file"}
	r.sub.Auth = &language.Login{Credentials: brokertest.Secret("file")}
	r.reads()
	r.sub.Auth.Credentials = brokertest.Secret("broken")
	r.refused("no nkey seed")
}
