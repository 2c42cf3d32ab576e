package language

import (
	"embed"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
	"procaas/dsl/rules"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
)

// A Subscription makes events of the messages of a broker, each exactly once. Expressions may read message, which has subject, key,
// headers, whose names are in lower case, body, which is the decoded JSON, time and id.
type Subscription struct {
	Span diag.Span `yaml:"-"`

	spec.Places

	// ID names the subscription. Operators hold it as subscriptions/ID, and its events have that source.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Broker is the kind of broker. nats means JetStream, postgres a table that a service uses as an outbox, and store
	// what programs submit with procaas_submit to the store of the node.
	Broker string `yaml:"broker" required:"true" enum:"nats,kafka,rabbitmq,postgres,store"`

	// Servers are the addresses of the broker: nats://127.0.0.1:4222, 127.0.0.1:9092 for Kafka, amqp://127.0.0.1:5672 for RabbitMQ, with
	// /NAME for a virtual host, or postgres://127.0.0.1:5432/NAME with the database. One of them must answer.
	// The store needs none.
	Servers []string `yaml:"servers"`

	// Stream is the stream of JetStream to read.
	Stream string `yaml:"stream"`

	// Topic is the topic of Kafka to read.
	Topic string `yaml:"topic"`

	// Queue is the queue of RabbitMQ to read.
	Queue string `yaml:"queue"`

	// Table is the table of PostgreSQL to read: NAME, or SCHEMA.NAME. It needs a primary key. A row is deleted when its event is durable.
	Table string `yaml:"table"`

	// OrderBy is the column that has the order of the rows of a table. Without it, the primary key has.
	OrderBy string `yaml:"order-by"`

	// Mark is a column of a table, of the type boolean or timestamptz. Rows are marked there instead of deleted.
	Mark string `yaml:"mark"`

	// Prefetch is how many messages RabbitMQ sends before it waits for acknowledgements. The node has them in memory, of any size.
	Prefetch int `yaml:"prefetch" default:"128" min:"1" max:"1024"`

	// Filter is the subject of JetStream whose messages are read, such as orders.*.paid. Without it, all of the stream are.
	Filter string `yaml:"filter"`

	// Group is the name by which the broker remembers what was read: a durable consumer of JetStream, or a consumer group of Kafka. Without it, it is procaas-ID.
	Group string `yaml:"group" pattern:"id"`

	// Start says where a group begins that the broker does not know yet: at the first message that it has, or with new ones.
	Start string `yaml:"start" enum:"first,new" default:"first"`

	// Parallelism is how many parts of a batch are stored at once. Messages with the same key are in one part, so more than 1
	// needs a key.
	Parallelism int `yaml:"parallelism" default:"1" min:"1" max:"16"`

	// Auth is how the node proves to the broker who it is.
	Auth *Login `yaml:"auth"`

	// TLS encrypts the connection. The certificate of the broker is checked.
	TLS *Encryption `yaml:"tls"`

	// When says which messages become events. Others are acknowledged and forgotten.
	When *expr.Value `yaml:"when" kind:"bool"`

	// EventID names what happened, if the sender has a name for it. Messages with the same id are one event. Without it, the id
	// is the place of the message, which is its stream and sequence, or its topic, partition and offset, with its time. A row has
	// its primary key and a hash of its columns. RabbitMQ has no places: without an id, a message that it sends again becomes a second run.
	EventID *expr.Value `yaml:"event-id" kind:"string"`

	// Type is the type of the event. A message whose type no pipeline serves is a dead letter.
	Type *expr.Value `yaml:"type" required:"true" kind:"string"`

	// Key is the key of the event. Without it the flow of the pipeline reads it from the payload, but what was submitted to the store has
	// the key that was given there.
	Key *expr.Value `yaml:"key" kind:"string"`

	// Payload is the payload of the event. Without it, it is the decoded body.
	Payload *expr.Value `yaml:"payload"`

	// DeadLetters is how many messages that cannot become events are kept for operators. When there are more, reading stops.
	DeadLetters int `yaml:"dead-letters" default:"1000" min:"1" max:"10000"`

	// Owner is the team that looks after the subscription.
	Owner string `yaml:"owner"`
}

// Path is where operators hold the subscription, and the source of its events.
func (s *Subscription) Path() string { return SourceOf(s.ID) }

// SourceOf is the source of the events of a subscription.
func SourceOf(id string) string { return sectionName + "/" + id }

// Submitted is the table of the store that has what programs submit.
const Submitted = "submitted"

// OfStore reports whether it reads what programs submit to the store.
func (s *Subscription) OfStore() bool { return s.Broker == "store" }

// From is what it reads: the stream, topic, queue or table.
func (s *Subscription) From() string {
	if s.OfStore() {
		return Submitted
	}
	return s.Stream + s.Topic + s.Queue + s.Table
}

// Origin is what it reads, for people.
func (s *Subscription) Origin() string {
	if s.OfStore() {
		return "procaas_submit"
	}
	return reads[s.Broker] + " " + s.From() + " of " + s.Broker
}

// GroupName is the name by which the broker remembers what was read. A queue or a table remembers that itself.
func (s *Subscription) GroupName() string {
	switch {
	case s.Queue != "", s.Table != "", s.OfStore():
		return s.From()
	case s.Group != "":
		return s.Group
	}
	return "procaas-" + s.ID
}

// Passes reports whether JetStream sends messages with a subject. In the filter, * is any one part of the subject, and > at the end is
// one or more.
func (s *Subscription) Passes(subject string) bool {
	if s.Filter == "" {
		return true
	}
	want, have := strings.Split(s.Filter, "."), strings.Split(subject, ".")
	for i, w := range want {
		if i == len(have) {
			return false
		}
		if w == ">" {
			return true
		}
		if w != "*" && w != have[i] {
			return false
		}
	}
	return len(want) == len(have)
}

// Connection says where the broker is, and who connects.
func (s *Subscription) Connection() *Connection { return &Connection{s.Servers, s.Auth, s.TLS} }

// Reads describes all that needs a new reader when it changes.
func (s *Subscription) Reads() string {
	return fmt.Sprintf("%s %q %q %q %s %d %q %q %s", s.Broker, s.From(), s.Filter, s.GroupName(), s.Start, s.Prefetch, s.OrderBy, s.Mark, s.Connection().text())
}

// A section is the section of files.
type section struct {
	// Subscriptions bring messages of brokers in as events.
	Subscriptions []*Subscription `yaml:"subscriptions"`
}

//go:embed rules.yaml
var rulesFile embed.FS

func readRules() []rules.Rule { return rules.Read(rulesFile, "rules.yaml") }

//go:embed subscription.go connection.go broker.go
var source embed.FS

// sectionSpec describes the section.
var sectionSpec = sync.OnceValue(func() *spec.Spec { return spec.OfFile(reflect.TypeFor[section](), spec.Read(source)) })

// All lists the subscriptions of a bundle.
func All(b *tree.Bundle) []*Subscription { return tree.In[*Subscription](b, sectionName) }

// Of returns a subscription of a bundle by its id, or nil.
func Of(b *tree.Bundle, id string) *Subscription {
	for _, s := range All(b) {
		if s.ID == id {
			return s
		}
	}
	return nil
}

const sectionName = "subscriptions"
