// Package broker is what subscriptions know of a broker. Each broker has a package of its own behind it.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"procaas/handlers/subscriptions/language"
)

// These bound what one Fetch returns. A batch may exceed MaxBytes by the largest message that the broker allows.
const (
	MaxMessages = 512
	MaxBytes    = 2 << 20
)

// A Message is a message of a broker.
type Message struct {
	// ID is the place of the message with its time. A repeated delivery has the same one, and no other message ever has: a broker that
	// has lost messages uses their places again.
	ID string

	Subject string // or topic, or table
	Key     string // empty for none
	Headers map[string]any
	Body    []byte
	Time    time.Time

	Receipt any // for the package of the broker
}

// Size is about what the message takes in memory.
func (m *Message) Size() int { return len(m.Body) + len(m.Subject) + len(m.Key) + 512 }

// A Source reads the messages of one subscription. One goroutine calls Fetch, and another one Done, in the order of the messages.
//
// Messages of a partition come in the order of their places, each for the first time. If another node has read some and has not
// acknowledged them, they come again before any later one. So two nodes that read the same partition for a moment do no harm: each
// stores the events in order, and the store takes each once.
type Source interface {
	// Fetch waits for the next messages. It returns none if there are none for some time.
	Fetch(ctx context.Context) ([]Message, error)

	// Done acknowledges messages, which are durable now, or were dropped on purpose.
	Done(ctx context.Context, messages []Message) error

	// Lag returns how many messages of the subscription are not acknowledged yet.
	Lag(ctx context.Context) (int64, error)

	// Origin tells a stream or topic from another one of the same name that was made later.
	Origin() string

	// Most is the size of the largest message that the broker may send, in bytes.
	Most() int

	Close()
}

// Options are what a source needs of its node.
type Options struct {
	Subscription *language.Subscription
	Connection   *Connection
	Log          *slog.Logger

	// Known is the [Source.Origin] that was read before, as this group; empty for none.
	Known string
}

// Begin decides where a group begins that the broker does not know: with new messages, or at the first one. The origin is what is read now.
func (o *Options) Begin(origin string) (fresh bool, err error) {
	s := o.Subscription
	switch {
	case o.Known == "":
		return s.Start == "new", nil
	case o.Known != origin: // it was made anew, and nobody has read any of it
		return false, nil
	}
	return false, fmt.Errorf("the broker has forgotten how far the group %s has read %s, so messages would be missed or come again: "+
		"give the subscription another group:, which begins as start: says", s.GroupName(), s.From())
}

// An Open connects to the broker, and returns the source of a subscription. It is called again after errors.
type Open func(ctx context.Context, o Options) (Source, error)

// A Kind is a kind of broker.
type Kind struct {
	Open Open
	Dial Dial // to send to it; nil if that is not possible

	// Shared reports that all nodes read, because the broker gives each partition to one of them. Otherwise one node reads.
	Shared bool
}

// ErrMoved reports that another node has taken over what the source has read. Its messages must not be acknowledged.
var ErrMoved = errors.New("another node reads these messages now")
