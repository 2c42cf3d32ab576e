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

// mostState bounds the answer of a worker, in bytes. Each partition takes about 60. A larger answer
// is cut off and invalid.
const mostState = 8 << 20

// A Caller sends orders to workers. It sets no timeout: use the context.
type Caller struct {
	// HTTP reaches the workers. It is required.
	HTTP *http.Client

	// Token is the bearer token of orders. Empty sends none.
	Token string
}

// State asks a worker for its state.
func (c Caller) State(ctx context.Context, url string) (State, error) {
	return c.call(ctx, http.MethodGet, url, Root, nil)
}

// Order sends an order to a worker, and returns its state after that. path is one of the paths of
// the protocol. The error is an [*OutdatedError] if the worker knows a newer assignment.
func (c Caller) Order(ctx context.Context, url, path string, o Order) (State, error) {
	if o.Partitions == nil { // in other languages, null is not a list
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

// arrange sorts the partitions of an answer, whose order the protocol leaves open, and checks them.
// A negative number would be used as an index.
func (s *State) arrange(method, path string) error {
	slices.SortFunc(s.Partitions, func(a, b Partition) int { return a.Partition - b.Partition })
	if len(s.Partitions) > 0 && s.Partitions[0].Partition < 0 {
		return fmt.Errorf("%s %s: the answer is no state: want partitions from 0, have %d", method, path, s.Partitions[0].Partition)
	}
	return nil
}

// refused returns the error of an answer. Only a refusal with the code for an outdated order ends a
// round. Any other 409, for example of a proxy, means that the worker does not answer.
func refused(method, path string, status int, body []byte) error {
	var r Refusal
	_ = json.Unmarshal(body, &r) // anything that is not a refusal is reported as it is
	if status == http.StatusConflict && r.Code == CodeOutdated {
		return &OutdatedError{Heard: r.Heard}
	}
	if r.Detail == "" {
		r.Detail = string(body[:min(len(body), 200)])
	}
	return fmt.Errorf("%d from %s %s: %s", status, method, path, r.Detail)
}
