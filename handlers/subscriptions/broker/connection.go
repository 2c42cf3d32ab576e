package broker

import (
	"context"
	"crypto/tls"
	"net"

	"procaas/dsl/expr"
	"procaas/engine/model"
	"procaas/engine/outbound"
	"procaas/handlers/subscriptions/language"
)

// A Connection is how a node connects to a broker: to read it, or to send to it.
type Connection struct {
	*language.Connection

	Client string // what the broker calls the client
	Secret func(name string) (string, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// TLSConfig returns how connections are encrypted, or nil if the declaration has no tls.
func (c *Connection) TLSConfig() (*tls.Config, error) {
	if c.TLS == nil {
		return nil, nil
	}
	var pem [3]string
	for i, field := range []*expr.Value{c.TLS.CA, c.TLS.Certificate, c.TLS.Key} {
		name := field.SecretName()
		if name == "" {
			continue
		}
		var err error
		if pem[i], err = c.Secret(name); err != nil {
			return nil, err
		}
	}
	secure, err := outbound.TLSConfig(pem[0], pem[1], pem[2])
	if err != nil {
		return nil, model.WithClass(model.ClassCredentials, err) // of the node: the broker was not asked
	}
	return secure, nil
}
