// Package client asks a procaas server where keys live, for services written in Go. It needs only
// the standard library. The service brings its own PostgreSQL driver.
//
//	shards := client.New("http://127.0.0.1:8080", token, "mail")
//	go shards.Watch(ctx)
//	err := shards.Do(ctx, client.Question{Key: "42"}, func(ctx context.Context, at client.Answer) error {
//		// connect to at.DSN and, first in the transaction:
//		// select procaas.guard(at.Map, at.Placement, at.Epoch)
//	})
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"procaas/engine/clock"
)

// These are the modes of a question.
const (
	Master  = "master"  // to write
	Replica = "replica" // to read
	Any     = "any"     // to read from the nearest host
)

// A Question asks where a key lives.
type Question struct {
	Key    string        // its parts joined by slashes; see [Key]
	Mode   string        // empty means Master
	MaxLag time.Duration // largest lag of a replica; 0 for any
	MinLSN string        // position that a replica must have replayed, such as 16/B374D848
	DC     string        // data center of the caller; may be empty
}

// An Answer says where a key lives.
type Answer struct {
	Map       string `json:"map"`
	Key       string `json:"key"`
	Placement string `json:"placement"` // for the guard
	Shard     string `json:"shard"`
	Class     string `json:"class"`
	Epoch     int64  `json:"epoch"` // for the guard
	Hosts     []Host `json:"hosts"` // in the order in which to try them
	DSN       string `json:"dsn"`   // with these hosts, without a password
	Moving    bool   `json:"moving"`
	Stale     bool   `json:"stale"`
}

// A Host is one server.
type Host struct {
	Address string `json:"address"`
	DC      string `json:"dc"`
	Role    string `json:"role"`
	LagMS   int64  `json:"lag_ms"`
}

// A Problem is an error from the server. Its codes are stable.
type Problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error implements error.
func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Key joins the parts of a key, widest first.
func Key(parts ...string) string {
	escape := strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23", "[", "%5B")
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = escape.Replace(p)
	}
	return strings.Join(out, "/")
}

// A Client asks about one map. It caches answers for a while. An outdated answer does no harm to
// writers that call the guard. It is safe for concurrent use.
type Client struct {
	// HTTP sends the questions. Its timeout must not be below ten seconds, because a question may
	// wait for a switch. Watch ignores the timeout, because its answers have no end.
	HTTP *http.Client

	// TTL is how long an answer is cached. New sets five seconds. 0 caches none.
	TTL time.Duration

	// Patience bounds Do, unless its context ends earlier. New sets ten seconds.
	Patience time.Duration

	base, token string

	mu      sync.Mutex // guards the following
	answers map[Question]kept
	placed  map[string]map[Question]bool // questions by the placement of their answers
	changes int64                        // how often answers were dropped
}

type kept struct {
	answer Answer
	until  time.Time
}

// maxKept bounds the cached answers.
const maxKept = 100_000

// New makes a client of a map at a server, such as http://127.0.0.1:8080. The token may be empty.
func New(base, token, shardMap string) *Client {
	return &Client{
		HTTP: &http.Client{Timeout: 15 * time.Second}, TTL: 5 * time.Second, Patience: 10 * time.Second,
		base: strings.TrimRight(base, "/") + "/v1/shard-maps/" + url.PathEscape(shardMap), token: token,
		answers: map[Question]kept{}, placed: map[string]map[Question]bool{},
	}
}

// Resolve returns where a key lives.
func (c *Client) Resolve(ctx context.Context, q Question) (Answer, error) {
	if q.Mode == "" {
		q.Mode = Master
	}
	c.mu.Lock()
	known, ok := c.answers[q]
	before := c.changes
	c.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.answer, nil
	}
	a, err := c.ask(ctx, q, 0)
	if err == nil {
		c.keep(q, a, before)
	}
	return a, err
}

// keep caches an answer, unless a change was reported since it was requested.
func (c *Client) keep(q Question, a Answer, before int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != before || c.TTL <= 0 {
		return
	}
	if len(c.answers) >= maxKept {
		clear(c.answers)
		clear(c.placed)
	}
	c.answers[q] = kept{a, time.Now().Add(c.TTL)}
	if c.placed[a.Placement] == nil {
		c.placed[a.Placement] = map[Question]bool{}
	}
	c.placed[a.Placement][q] = true
}

// forget drops the answers about some placements, or all if reset is set.
func (c *Client) forget(reset bool, placements ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	if reset {
		clear(c.answers)
		clear(c.placed)
	}
	for _, p := range placements {
		for q := range c.placed[p] {
			delete(c.answers, q)
		}
		delete(c.placed, p)
	}
}

// Do calls f with the answer to a question. It calls f again with a newer answer if the shard's
// error has the SQLSTATE PC001 or PC002, which report an outdated answer. It also does so after
// 40001, a conflict with another transaction. f must roll back if it fails.
func (c *Client) Do(ctx context.Context, q Question, f func(context.Context, Answer) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	a, err := c.Resolve(ctx, q)
	for pause := 5 * time.Millisecond; err == nil; pause = min(2*pause, 500*time.Millisecond) {
		failure := f(ctx, a)
		after := int64(0)
		switch state := sqlState(failure); state {
		case "PC001":
			after = a.Epoch
		case "PC002", "40001":
			if !clock.Pause(ctx, pause) {
				return failure
			}
		default:
			return failure
		}
		c.forget(false, a.Placement)
		if a, err = c.ask(ctx, q, after); err == nil && a.Epoch == after && !clock.Pause(ctx, pause) {
			return failure
		}
		var p *Problem
		if errors.As(err, &p) && p.Code == "no_fit_host" && clock.Pause(ctx, pause) {
			a, err = c.ask(ctx, q, 0) // a failover is in progress
		}
		if err != nil && ctx.Err() != nil {
			return failure
		}
	}
	return err
}

// sqlState returns the SQLSTATE of an error of pgx or lib/pq.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

func (c *Client) ask(ctx context.Context, q Question, afterEpoch int64) (a Answer, err error) {
	v := url.Values{"key": {q.Key}}
	for name, value := range map[string]string{"mode": q.Mode, "min-lsn": q.MinLSN, "dc": q.DC} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.MaxLag > 0 {
		v.Set("max-lag", q.MaxLag.String())
	}
	if afterEpoch > 0 {
		v.Set("after-epoch", strconv.FormatInt(afterEpoch, 10))
	}
	err = c.get(ctx, "/resolve?"+v.Encode(), &a)
	return a, err
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	reply, err := c.send(ctx, c.HTTP, path, "application/json")
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	return decode(reply, into)
}

// send makes a request, and returns the reply if there is one.
func (c *Client) send(ctx context.Context, by *http.Client, path, accept string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	reply, err := by.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the shard map: %w", err)
	}
	if reply.StatusCode == http.StatusOK {
		return reply, nil
	}
	defer reply.Body.Close()
	p := &Problem{Status: reply.StatusCode}
	if err := json.NewDecoder(io.LimitReader(reply.Body, maxAnswer)).Decode(p); err != nil || p.Code == "" {
		return nil, fmt.Errorf("ask the shard map: the server answers %s", reply.Status)
	}
	return nil, p
}

// maxAnswer bounds what is read of one answer or event, in bytes.
const maxAnswer = 16 << 20

func decode(reply *http.Response, into any) error {
	if err := json.NewDecoder(io.LimitReader(reply.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("ask the shard map: %w", err)
	}
	return nil
}
