package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"procaas/engine/model"
)

// An Outgoing is a message to send. Every attempt of a call sends the same one.
type Outgoing struct {
	ID       string // the same for all attempts, so that the broker or a reader recognises a repeat
	To       string // subject, topic or routing key
	Exchange string // of RabbitMQ; empty for the one that leads to the queue with the name To
	Key      string // messages with the same key keep their order, if the broker has partitions; empty for none
	Headers  map[string]string
	Body     []byte
}

// A Publisher sends messages over one connection. Goroutines may share it.
type Publisher interface {
	// Publish returns when the broker has stored the message, and says where. After an error it may be stored all the same.
	// A [model.Permanent] error is about the message. Others have a class that says whether a retry helps.
	Publish(ctx context.Context, m *Outgoing) (Stored, error)

	// Broken reports that the connection will send nothing more.
	Broken() bool

	Close()
}

// A Stored is where a broker has stored a message, as the reply of a handler.
type Stored struct {
	Place     map[string]any
	Duplicate bool // the broker had it already
}

// A Dial connects to the broker, to send to it.
type Dial func(ctx context.Context, c *Connection) (Publisher, error)

// Classified adds the class of an error, by which retries and fallbacks know it. of adds that of an error that the broker itself has
// sent, and returns nil for others.
func Classified(err error, of func(error) error) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &certificate):
		return model.WithClass(model.ClassCertificate, err)
	case model.ClassOf(err) == model.ClassCredentials: // a secret is not there, so the broker was not asked
		return err
	}
	return cmp.Or(of(err), model.WithClass("connection", err))
}

// CheckSubject refuses subjects of NATS that data could have led elsewhere: to many subscribers, or to the server itself.
func CheckSubject(subject string) error {
	if strings.HasPrefix(subject, "$") {
		return fmt.Errorf("subject %q belongs to the server", subject)
	}
	if strings.ContainsFunc(subject, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) || c == '*' || c == '>' }) {
		return fmt.Errorf("subject %q: want words without blanks and wildcards, such as orders.paid", subject)
	}
	for part := range strings.SplitSeq(subject, ".") {
		if part == "" {
			return fmt.Errorf("subject %q: want words with a dot between them, such as orders.paid", subject)
		}
	}
	return nil
}
