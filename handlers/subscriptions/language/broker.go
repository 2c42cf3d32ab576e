package language

import (
	"fmt"
	"reflect"
	"sync"

	"procaas/dsl/diag"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Broker takes messages from handlers of the type publish.
type Broker struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the broker. Handlers name it, and secrets in a folder of that name are for it.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Kind is the kind of broker. nats means JetStream.
	Kind string `yaml:"kind" required:"true" enum:"nats,kafka,rabbitmq"`

	// Servers are the addresses of the broker: nats://127.0.0.1:4222, 127.0.0.1:9092 for Kafka, or amqp://127.0.0.1:5672 for RabbitMQ, with
	// /NAME for a virtual host. One of them must answer.
	Servers []string `yaml:"servers" required:"true"`

	// Auth is how the node proves to the broker who it is.
	Auth *Login `yaml:"auth"`

	// TLS encrypts the connection. The certificate of the broker is checked.
	TLS *Encryption `yaml:"tls"`

	// Owner is the team that looks after the broker.
	Owner string `yaml:"owner"`
}

// Connection says where the broker is, and who connects.
func (b *Broker) Connection() *Connection { return &Connection{b.Servers, b.Auth, b.TLS} }

// Reached describes all that needs a new connection when it changes.
func (b *Broker) Reached() string {
	return fmt.Sprintf("%s %s %s", b.ID, b.Kind, b.Connection().text())
}

// A brokersSection is the section of files.
type brokersSection struct {
	// Brokers take messages from handlers.
	Brokers []*Broker `yaml:"brokers"`
}

// brokersSpec describes the section.
var brokersSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[brokersSection](), spec.Read(source)) })

// Brokers is the section brokers of files.
func Brokers() tree.Section {
	return tree.Section{
		Of: brokersSpec(),
		Check: func(value any, c *tree.Checking) {
			for _, b := range value.([]*Broker) {
				b.Connection().Check(fmt.Sprintf("broker %q", b.ID), b.Kind, b, b.Span, c)
			}
		},
		Each: func(value any, visit func(tree.Declaration)) {
			for _, b := range value.([]*Broker) {
				visit(tree.Declaration{
					Kind: "broker", ID: b.ID, Span: b.Span, At: b.PlaceOf("id", b.Span), Owner: &b.Owner, OwnerAt: b.PlaceOf("owner", b.Span),
				})
			}
		},
	}
}

// AllBrokers lists the brokers of a bundle.
func AllBrokers(b *tree.Bundle) []*Broker { return tree.In[*Broker](b, "brokers") }

// BrokerOf returns a broker of a bundle by its id, or nil.
func BrokerOf(b *tree.Bundle, id string) *Broker {
	for _, k := range AllBrokers(b) {
		if k.ID == id {
			return k
		}
	}
	return nil
}
