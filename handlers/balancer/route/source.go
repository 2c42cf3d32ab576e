package route

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
	"time"

	"procaas/handlers/balancer/clusters"
)

// These are the errors of routing.
var (
	ErrUnknown = errors.New("no assignment of the cluster is known yet")
	ErrNobody  = errors.New("no worker has the partition")
)

// A Server is a [Source] that asks a ProcaaS server over HTTP, by long polls.
type Server struct {
	URL     string        // such as http://127.0.0.1:8080
	Cluster string        // its id
	Token   string        // of a viewer; empty for none
	HTTP    *http.Client  // nil means [http.DefaultClient]; its timeout must be longer than Wait
	Wait    time.Duration // of one poll; 0 means [DefaultWait]
}

const (
	// DefaultWait is how long one poll of a [Server] waits for news.
	DefaultWait = 20 * time.Second
	// slack is how long a server may take in addition to the wait.
	slack = 10 * time.Second
	// mostAssignment bounds an assignment, in bytes.
	mostAssignment = 64 << 20
)

// Await implements [Source].
func (s Server) Await(ctx context.Context, after int64) (clusters.Assignment, error) {
	for {
		a, news, err := s.poll(ctx, after)
		if err != nil || news {
			return a, err
		}
	}
}

// poll asks once. news is false if there was nothing newer within the wait. It refuses an
// assignment with a partition whose worker is missing, so that [clusters.Assignment.Owner] need not
// check.
func (s Server) poll(ctx context.Context, after int64) (a clusters.Assignment, news bool, err error) {
	wait := s.Wait
	if wait <= 0 {
		wait = DefaultWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait+slack)
	defer cancel()
	query := url.Values{"after": {strconv.FormatInt(after, 10)}, "wait": {wait.String()}}
	address := strings.TrimSuffix(s.URL, "/") + "/v1/clusters/" + url.PathEscape(s.Cluster) + "/assignment?" + query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return a, false, err
	}
	if s.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.Token)
	}
	client := s.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	reply, err := client.Do(r)
	if err != nil {
		return a, false, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, mostAssignment))
	switch {
	case err != nil:
		return a, false, err
	case reply.StatusCode == http.StatusNoContent:
		return a, false, nil
	case reply.StatusCode != http.StatusOK:
		return a, false, fmt.Errorf("%d from GET %s: %s", reply.StatusCode, r.URL.Path, body[:min(len(body), 200)])
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, false, fmt.Errorf("GET %s: the answer is no assignment: %w", r.URL.Path, err)
	}
	for p, w := range a.Owners {
		if w < -1 || w >= len(a.Workers) {
			return a, false, fmt.Errorf("GET %s: partition %d is on worker %d of %d", r.URL.Path, p, w, len(a.Workers))
		}
	}
	return a, true, nil
}
