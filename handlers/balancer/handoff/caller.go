package handoff

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// mostState bounds the answer of a worker, in bytes. Each partition takes about 60: a
// larger answer is cut off, and no state then.
const mostState = 8 << 20

// A Caller gives orders to workers. It sets no timeout of its own: the context does.
type Caller struct {
	// HTTP reaches the workers; it is needed.
	HTTP *http.Client

	// Token is the bearer token of orders; they have none when it is empty.
	Token string
}

// State asks a worker what it holds.
func (c Caller) State(ctx context.Context, url string) (State, error) {
	return c.call(ctx, http.MethodGet, url, Root, nil)
}

// Order sends a worker an order, and the answer is what the worker holds after it; path is one of the paths of the protocol. The error is
// an [*OutdatedError] when the worker has heard of a newer assignment.
func (c Caller) Order(ctx context.Context, url, path string, o Order) (State, error) {
	if o.Partitions == nil { // null would be no list to workers in other languages
		o.Partitions = []int{}
	}
	body, err := json.Marshal(o)
	if err != nil {
		return State{}, err
	}
	s, err := c.call(ctx, http.MethodPost, url, path, body)
	if outdated, ok := err.(*OutdatedError); ok { //nolint:errorlint // call gives it as it is
		outdated.Order = o.Version
	}
	return s, err
}

func (c Caller) call(ctx context.Context, method, url, path string, body []byte) (State, error) {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(url, "/")+path, bytes.NewReader(body))
	if err != nil {
		return State{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	reply, err := c.HTTP.Do(r)
	if err != nil {
		return State{}, err
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(io.LimitReader(reply.Body, mostState))
	if err != nil {
		return State{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if reply.StatusCode != http.StatusOK {
		return State{}, refused(method, path, reply.StatusCode, data)
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("%s %s: the answer is no state: %w", method, path, err)
	}
	err = s.arrange(method, path)
	return s, err
}

// arrange makes an answer one that can be searched. Workers are programs of others, and the
// protocol leaves the order of partitions open; a number below 0 is no partition, and would
// be taken for an index.
func (s *State) arrange(method, path string) error {
	slices.SortFunc(s.Partitions, func(a, b Partition) int { return a.Partition - b.Partition })
	if len(s.Partitions) > 0 && s.Partitions[0].Partition < 0 {
		return fmt.Errorf("%s %s: the answer is no state: want partitions from 0, have %d", method, path, s.Partitions[0].Partition)
	}
	return nil
}

// refused makes the error of an answer. Only the refusal that says by its code that it is
// one of an outdated order ends a round: a 409 of anything between here and the worker is
// a worker that does not answer.
func refused(method, path string, status int, body []byte) error {
	var r Refusal
	_ = json.Unmarshal(body, &r) // what is no refusal is told as it is
	if status == http.StatusConflict && r.Code == CodeOutdated {
		return &OutdatedError{Heard: r.Heard}
	}
	if r.Detail == "" {
		r.Detail = string(body[:min(len(body), 200)])
	}
	return fmt.Errorf("%d from %s %s: %s", status, method, path, r.Detail)
}
