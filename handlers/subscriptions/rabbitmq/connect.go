package rabbitmq

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"procaas/handlers/subscriptions/broker"
)

// Connect connects to the first server that answers.
func Connect(ctx context.Context, c *broker.Connection) (*amqp.Connection, error) {
	config := amqp.Config{
		Heartbeat: heartbeat, Properties: amqp.Table{"connection_name": c.Client},
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := c.Dial(ctx, network, address)
			if err == nil {
				err = conn.SetDeadline(time.Now().Add(timeout)) // until the server has let the client in
			}
			return conn, err
		},
	}
	var err error
	if config.TLSClientConfig, err = c.TLSConfig(); err != nil {
		return nil, err
	}
	if a := c.Auth; a != nil {
		password, err := c.Secret(a.Password.Secret)
		if err != nil {
			return nil, err
		}
		config.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: a.Username, Password: password}}
	}
	var failed error
	for _, server := range c.Servers {
		if c.TLS != nil {
			server = strings.Replace(server, "amqp://", "amqps://", 1)
		}
		conn, err := amqp.DialConfig(server, config)
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}
