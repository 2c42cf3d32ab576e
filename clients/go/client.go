// Package procaas submits events to a procaas server, waits for their runs, and does the tasks of its queues.
//
// Each call is retried while the server is away or overloaded. An event keeps its id meanwhile, so it starts one run. Errors of the
// server are [*Problem].
package procaas

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options configure a client. The zero value has useful defaults.
type Options struct {
	// Token is the bearer token. The default is none.
	Token string

	// Attempts is how often a call is tried. 0 means 5.
	Attempts int

	// HTTP makes the requests. It must have no timeout, since some calls wait. Nil means a client with the defaults of Go.
	HTTP *http.Client
}

// A Client calls a procaas server. It is safe for concurrent use.
type Client struct {
	base string // without a slash at the end
	o    Options
}

// These bound calls.
const (
	replyWithin  = 15 * time.Second // for a call that does not wait
	waitAtOnce   = 30 * time.Second // one request for the end of a run
	silentAtMost = 45 * time.Second // a stream sends a comment every 15 s
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	maxReply     = 64 << 20
)

const waiting = "wait=30s" // waitAtOnce, in a query

// New makes a client of a server, such as http://127.0.0.1:8080.
func New(server string, o Options) *Client {
	o.Attempts = cmp.Or(o.Attempts, 5)
	o.HTTP = cmp.Or(o.HTTP, &http.Client{})
	return &Client{base: strings.TrimRight(server, "/"), o: o}
}

// Submit submits an event, and returns which run it has started. An event without an id gets one.
func (c *Client) Submit(ctx context.Context, e Event) (r Receipt, err error) {
	name(&e)
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/events", body: e}, &r)
	return r, err
}

// SubmitMany submits up to 1,000 events. It returns one outcome for each, in order. If the server refuses all, it returns a [*Problem]
// with the reasons.
func (c *Client) SubmitMany(ctx context.Context, events []Event) ([]ReceiptItem, error) {
	named := make([]Event, len(events))
	for i, e := range events {
		name(&e)
		named[i] = e
	}
	var reply struct{ Items []ReceiptItem }
	_, err := c.call(ctx, request{method: http.MethodPost, path: "/v1/events", body: named}, &reply)
	return reply.Items, err
}

// SubmitAndWait submits an event, and waits for the end of its run. Look at the status of the result: a run may have failed.
func (c *Client) SubmitAndWait(ctx context.Context, e Event) (r Result, err error) {
	name(&e)
	for {
		_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/events?" + waiting, body: e, wait: waitAtOnce}, &r)
		if err != nil || r.Status != "" {
			return r, err
		}
	}
}

// name sets the id of an event that has none, so that a retry starts no second run.
func name(e *Event) { e.ID = cmp.Or(e.ID, rand.Text()) }

// Run reads a run as it is now.
func (c *Client) Run(ctx context.Context, id string) (r Run, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(id)}, &r)
	return r, err
}

// Wait waits for the end of a run.
func (c *Client) Wait(ctx context.Context, id string) (r Run, err error) {
	for {
		status, err := c.call(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(id) + "?" + waiting, wait: waitAtOnce}, &r)
		if err != nil || status == http.StatusOK {
			return r, err
		}
	}
}

// PutTask puts a task into a queue. It is retried only if the task has a unique name: otherwise it could be there twice.
func (c *Client) PutTask(ctx context.Context, queue string, t Task) (r TaskReceipt, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/queues/" + url.PathEscape(queue) + "/tasks", body: t, once: t.Unique == ""}, &r)
	return r, err
}

// A request is a call before it is made.
type request struct {
	method, path string
	body         any
	wait         time.Duration // how much longer the server may take for the reply
	once         bool          // the call must not be retried
}

// call makes a call until it is answered, and decodes the reply.
func (c *Client) call(ctx context.Context, r request, out any) (status int, err error) {
	body, err := json.Marshal(r.body)
	if err != nil {
		return 0, fmt.Errorf("encode the request: %w", err)
	}
	for attempt := 1; ; attempt++ {
		status, err = c.try(ctx, r, body, out)
		if err == nil || r.once || attempt >= c.o.Attempts || !passes(ctx, err) {
			return status, err
		}
		if err := pause(ctx, attempt, err); err != nil {
			return status, err
		}
	}
}

// try makes one attempt of a call.
func (c *Client) try(ctx context.Context, r request, body []byte, out any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyWithin+r.wait)
	defer cancel()
	reply, err := c.send(ctx, r, body)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return 0, fmt.Errorf("read the reply: %w", err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return 0, fmt.Errorf("%s does not answer as procaas does: %w", c.base, err)
	}
	return reply.StatusCode, nil
}

// send sends a request. The error of a refusal is a [*Problem].
func (c *Client) send(ctx context.Context, r request, body []byte) (*http.Response, error) {
	var content io.Reader
	if r.body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, content)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	reply, err := c.o.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode >= http.StatusBadRequest {
		defer reply.Body.Close()
		return nil, problemOf(reply)
	}
	return reply, nil
}

// passes reports whether an error may pass: the server is away or overloaded, or the connection broke. That the caller gives up is none.
func passes(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	var p *Problem
	return !errors.As(err, &p) || p.Temporary()
}

// pause waits before the next attempt: what the server asks for, or longer each time.
func pause(ctx context.Context, attempt int, after error) error {
	d := longestPause
	if attempt < 6 {
		d = firstPause << (attempt - 1)
	}
	var p *Problem
	if errors.As(after, &p) && p.RetryAfter > 0 {
		d = p.RetryAfter
	}
	t := time.NewTimer(jittered(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
