package language

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Connection says where a broker is, and how a node proves to it who it is.
type Connection struct {
	Servers []string
	Auth    *Login      // nil for none
	TLS     *Encryption // nil if the addresses say all
}

// A Login is how the node proves to a broker who it is. It has a username with its password, a token, or credentials.
type Login struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// Username is the name of the user.
	Username string `yaml:"username"`

	// Password is the secret with the password.
	Password *expr.Value `yaml:"password" kind:"secret" expr:"no"`

	// Mechanism is how Kafka takes the password.
	Mechanism string `yaml:"mechanism" enum:"plain,scram-sha-256,scram-sha-512" default:"plain"`

	// Token is the secret with a token of NATS.
	Token *expr.Value `yaml:"token" kind:"secret" expr:"no"`

	// Credentials is the secret with the text of a credentials file of NATS.
	Credentials *expr.Value `yaml:"credentials" kind:"secret" expr:"no"`
}

// An Encryption is how connections to a broker are encrypted.
type Encryption struct {
	// CA is the secret with the certificates, in PEM, that sign that of the broker. Without it, those of the system count.
	CA *expr.Value `yaml:"ca" kind:"secret" expr:"no"`

	// Certificate is the secret with the certificate of the node in PEM, if the broker wants one. It needs a key.
	Certificate *expr.Value `yaml:"certificate" kind:"secret" expr:"no"`

	// Key is the secret with the private key of the certificate.
	Key *expr.Value `yaml:"key" kind:"secret" expr:"no"`
}

// text describes all that needs a new connection when it changes.
func (k *Connection) text() string {
	text := fmt.Sprintf("%q", k.Servers)
	if a := k.Auth; a != nil {
		text += fmt.Sprintf(" %s %q %q", a.Mechanism, a.Username, []string{a.Password.SecretName(), a.Token.SecretName(), a.Credentials.SecretName()})
	}
	if t := k.TLS; t != nil {
		text += fmt.Sprintf(" tls %q", []string{t.CA.SecretName(), t.Certificate.SecretName(), t.Key.SecretName()})
	}
	return text
}

// schemes are what addresses of a broker begin with. The empty one is for addresses without any.
var schemes = map[string][]string{"nats": {"nats", "tls"}, "kafka": {""}, "rabbitmq": {"amqp", "amqps"}, "postgres": {"postgres"}}

// examples are addresses of brokers.
var examples = map[string]string{
	"nats": "nats://broker.internal:4222", "kafka": "broker.internal:9092", "rabbitmq": "amqp://broker.internal:5672",
	"postgres": "postgres://db.internal:5432/shop",
}

// A Placed has the places of its fields.
type Placed interface {
	PlaceOf(name string, whole diag.Span) diag.Span
}

// Check reports what cannot work with a kind of broker. of names what connects, which is at a place and has the fields.
func (k *Connection) Check(of, kind string, fields Placed, at diag.Span, c *tree.Checking) {
	k.checkServers(of, kind, fields.PlaceOf("servers", at), at, c)
	if t := k.TLS; t != nil && (t.Certificate.SecretName() == "") != (t.Key.SecretName() == "") {
		c.Errorf(fields.PlaceOf("tls", at), rules.Subscription, "write both certificate: and key:, or none",
			"tls of %s has a certificate without its key, or a key without its certificate", of)
	}
	if k.Auth != nil {
		k.Auth.check(of, kind, c)
	}
}

func (k *Connection) checkServers(of, kind string, at, whole diag.Span, c *tree.Checking) {
	known, want := schemes[kind], "want such as "+examples[kind]
	if len(k.Servers) == 0 && !c.Blamed(whole) {
		c.Errorf(at, rules.Subscription, "name one, such as "+examples[kind], "%s has no servers", of)
	}
	for _, server := range k.Servers {
		scheme, rest, has := strings.Cut(server, "://")
		if !has {
			scheme, rest = "", server
		}
		var within string // a virtual host or a database
		if kind == "rabbitmq" || kind == "postgres" {
			rest, within, _ = strings.Cut(rest, "/")
		}
		_, port, err := net.SplitHostPort(rest)
		switch {
		case len(known) == 0: // the broker is unknown, which was reported
		case strings.Contains(rest, "@"):
			c.Errorf(at, rules.Subscription, "write auth: {username: NAME, password: !secret NAME}", "a server of %s holds a password", of)
		case !slices.Contains(known, scheme), strings.ContainsAny(rest, "/ ,"):
			c.Errorf(at, rules.Subscription, want, "server %q of %s is no address of a broker of this kind", server, of)
		case err != nil, port == "":
			c.Errorf(at, rules.Subscription, want, "server %q of %s has no port", server, of)
		case kind == "postgres" && (within == "" || strings.ContainsAny(within, "/?#")):
			c.Errorf(at, rules.Subscription, want, "server %q of %s does not end with the name of a database", server, of)
		}
	}
}

// check reports what is no single proof that the broker takes.
func (a *Login) check(of, kind string, c *tree.Checking) {
	const remedy = "write auth: {username: NAME, password: !secret NAME}"
	given := 0
	for _, is := range []bool{a.Username != "" || a.Password != nil, a.Token != nil, a.Credentials != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		c.Errorf(a.Span, rules.Subscription, "keep one of username with password, token and credentials",
			"auth of %s: want exactly one way to prove who connects, have %d", of, given)
	case kind != "nats" && a.Username == "" && a.Password == nil:
		c.Errorf(a.Span, rules.Subscription, remedy, "auth of %s: %s knows usernames with passwords", of, kind)
	case (a.Username == "") != (a.Password == nil):
		c.Errorf(a.Span, rules.Subscription, remedy, "auth of %s: a username and a password belong together", of)
	}
}
