package jetstream

import (
	"context"
	"net"
	"strings"

	"github.com/nats-io/nats.go"

	"procaas/handlers/subscriptions/broker"
)

// Connect connects to a server. A connection that breaks stays broken, and the caller connects again: what the server had assigned to it,
// or had taken from it, is unknown then.
func Connect(ctx context.Context, c *broker.Connection) (*nats.Conn, error) {
	way := &dialer{ctx: ctx, c: c}
	options := []nats.Option{
		nats.Name(c.Client), nats.NoReconnect(), nats.Timeout(timeout), nats.SetCustomDialer(way), nats.SkipHostLookup(), // the dialer does it
	}
	secure, err := c.TLSConfig()
	if err != nil {
		return nil, err
	}
	if secure != nil {
		options = append(options, nats.Secure(secure))
	}
	if c.Auth != nil {
		proof, err := proofOf(c)
		if err != nil {
			return nil, err
		}
		options = append(options, proof)
	}
	nc, err := nats.Connect(strings.Join(c.Servers, ","), options...)
	if err != nil && way.err != nil {
		return nil, way.err // the library does not say which address refused
	}
	return nc, err
}

// proofOf returns the option that proves who connects.
func proofOf(c *broker.Connection) (nats.Option, error) {
	a := c.Auth
	named := a.Password
	switch {
	case a.Token != nil:
		named = a.Token
	case a.Credentials != nil:
		named = a.Credentials
	}
	secret, err := c.Secret(named.Secret)
	switch {
	case err != nil:
		return nil, err
	case a.Token != nil:
		return nats.Token(secret), nil
	case a.Credentials != nil:
		return nats.UserCredentialBytes([]byte(secret)), nil
	}
	return nats.UserInfo(a.Username, secret), nil
}

// A dialer connects to the addresses that the operator allows.
type dialer struct {
	ctx context.Context //nolint:containedctx // the library passes none
	c   *broker.Connection
	err error // of the last call
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (conn net.Conn, err error) {
	conn, d.err = d.c.Dial(d.ctx, network, address)
	return conn, d.err
}
