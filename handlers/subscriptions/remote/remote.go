// Package remote has the messages of the calls about subscriptions, and calls them on a server.
package remote

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"procaas/engine/api/client"
)

// These are the states of a subscription.
const (
	Starting = "starting" // no node reads it yet
	Reading  = "reading"
	Held     = "held"    // by operators
	Failing  = "failing" // the broker or the store does not answer, or the list of dead letters is full
)

// A Subscription is a subscription with what its node last said of it.
type Subscription struct {
	ID     string `json:"id" doc:"The id."`
	Broker string `json:"broker" doc:"The kind of broker."`
	From   string `json:"from" doc:"The stream, topic, queue or table."`
	Owner  string `json:"owner,omitempty" doc:"The team that looks after it."`

	State   string `json:"state" enum:"starting,reading,held,failing" doc:"What the node does that reads it."`
	Problem string `json:"problem,omitempty" doc:"Why it is held or failing."`
	Node    string `json:"node,omitempty" doc:"The node that reads it."`
	Lag     int64  `json:"lag" doc:"Messages that were not acknowledged yet, a few seconds ago."`

	Accepted  int64 `json:"accepted" doc:"Messages that became events, on this node since it started to read."`
	Duplicate int64 `json:"duplicate" doc:"Messages that were events already."`
	Ignored   int64 `json:"ignored" doc:"Messages that the subscription does not want."`

	DeadLetters int `json:"dead_letters" doc:"Messages that could become no event and wait for operators."`

	Seen *time.Time `json:"seen,omitempty" doc:"When the node said so."`
}

// A DeadLetter is a message that could not become an event.
type DeadLetter struct {
	ID      string    `json:"id" doc:"The place of the message, which would be the id of its event."`
	Subject string    `json:"subject,omitempty" doc:"The subject or topic."`
	Key     string    `json:"key,omitempty" doc:"The key of the message."`
	Sent    time.Time `json:"sent" doc:"When it was sent."`
	Since   time.Time `json:"since" doc:"When it became a dead letter."`
	Bytes   int       `json:"bytes" doc:"The size of its body."`
	Cut     bool      `json:"cut,omitempty" doc:"true if the body was too large to be kept, so that it cannot be retried."`
	Reason  string    `json:"reason" doc:"Why it could not become an event."`
}

// A Message is a dead letter with what the sender wrote.
type Message struct {
	DeadLetter

	Headers map[string]any `json:"headers,omitempty" doc:"The headers, with names in lower case."`
	Body    string         `json:"body" doc:"The body. It is empty if it was too large to be kept."`
	Base64  bool           `json:"base64,omitempty" doc:"true if the body is no text, and is written in Base64."`
}

// A Choice chooses dead letters.
type Choice struct {
	IDs    []string `json:"ids,omitempty" doc:"The dead letters." maxItems:"1000"`
	All    bool     `json:"all,omitempty" doc:"true for all of them."`
	Reason string   `json:"reason,omitempty" doc:"Why, for the audit."`
}

// A Changed says what became of the chosen dead letters.
type Changed struct {
	Changed int      `json:"changed" doc:"How many became events, or were discarded."`
	Left    int      `json:"left" doc:"How many stay, because they could become no event again."`
	Reasons []string `json:"reasons,omitempty" doc:"Why the first of those stay."`
}

// List lists the subscriptions of a server.
func List(ctx context.Context, c *client.Client) ([]Subscription, error) {
	return client.List[Subscription](ctx, c, "/v1/subscriptions")
}

// DeadLetters lists the dead letters of a subscription.
func DeadLetters(ctx context.Context, c *client.Client, id string) ([]DeadLetter, error) {
	return client.List[DeadLetter](ctx, c, letters(id))
}

// DeadLetterOf reads one dead letter of a subscription.
func DeadLetterOf(ctx context.Context, c *client.Client, id, letter string) (Message, error) {
	return client.Send[Message](ctx, c, http.MethodGet, letters(id)+"/message?"+url.Values{"letter": {letter}}.Encode(), nil, nil)
}

// Change retries or discards dead letters. verb is the last part of the path.
func Change(ctx context.Context, c *client.Client, id, verb string, choice Choice) (Changed, error) {
	return client.Send[Changed](ctx, c, http.MethodPost, letters(id)+"/"+verb, choice, nil)
}

func letters(id string) string {
	return "/admin/v1/subscriptions/" + client.Segment(id) + "/dead-letters"
}
