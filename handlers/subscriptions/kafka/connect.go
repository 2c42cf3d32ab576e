package kafka

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"procaas/handlers/subscriptions/broker"
)

// Connect returns the options of a client that say where the broker is, and who connects.
func Connect(c *broker.Connection) ([]kgo.Opt, error) {
	secure, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Servers...), kgo.ClientID(c.Client), kgo.Dialer(dialer(c, secure)), kgo.RetryTimeout(timeout), kgo.DisableClientMetrics(),
	}
	if a := c.Auth; a != nil {
		password, err := c.Secret(a.Password.Secret)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(mechanism(a.Mechanism, a.Username, password)))
	}
	return options, nil
}

// dialer connects to the addresses that the operator allows.
func dialer(c *broker.Connection, secure *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.Dial(ctx, network, address)
		if err != nil || secure == nil {
			return conn, err
		}
		config := secure.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		encrypted := tls.Client(conn, config)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return encrypted, nil
	}
}

// mechanism returns how a user proves who it is.
func mechanism(name, user, password string) sasl.Mechanism {
	switch name {
	case "scram-sha-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}
