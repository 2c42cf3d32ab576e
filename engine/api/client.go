package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"procaas/engine"
)

// A Client calls the API of a server. Errors that the server tells are
// [*Problem]; any other error means that the call may or may not have taken
// effect. It is safe for concurrent use.
type Client struct {
	base  string // without a slash at its end
	token string // empty for none
	http  *http.Client
}

// callTime bounds one call; the server gives up earlier.
const callTime = 15 * time.Second

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 64 << 20

// NewClient makes a client of the server at base, such as
// http://127.0.0.1:8080. The token may be empty.
func NewClient(base, token string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{Timeout: callTime}}
}

// Submit sends the JSON of one event of the plain form, or of an array of them,
// and gives the reply as it came: a [Receipt] or [Receipts].
func (c *Client) Submit(ctx context.Context, body []byte) (json.RawMessage, error) {
	var reply json.RawMessage
	err := c.call(ctx, http.MethodPost, "/v1/events", json.RawMessage(body), nil, &reply)
	return reply, err
}

// SubmitEvent sends one event.
func (c *Client) SubmitEvent(ctx context.Context, e Event) (Receipt, error) {
	var receipt Receipt
	err := c.call(ctx, http.MethodPost, "/v1/events", e, nil, &receipt)
	return receipt, err
}

// Run reads a run. The error is a [*Problem] with the code run_not_found when there is none.
func (c *Client) Run(ctx context.Context, id string) (engine.RunView, error) {
	var run engine.RunView
	err := c.call(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(id), nil, nil, &run)
	return run, err
}

// Runs reads a page of runs, newest first.
func (c *Client) Runs(ctx context.Context, f engine.RunFilter) (Page[engine.RunView], error) {
	q := url.Values{}
	for name, value := range map[string]string{
		"pipeline": f.Pipeline, "flow": f.Flow, "key": f.Key, "status": string(f.Status), "cursor": f.Cursor,
		"handler": f.FailedPath, "left_out": f.LeftOut, "error_class": f.ErrorClass, "error": f.Error,
		"since": timeText(f.Since), "until": timeText(f.Until),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Live && f.Begun {
		q.Set("in_flight", "true")
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var page Page[engine.RunView]
	err := c.call(ctx, http.MethodGet, "/v1/runs?"+q.Encode(), nil, nil, &page)
	return page, err
}

// Explain tells why a handler ran in a run, or did not. The path may be shortened from
// the left.
func (c *Client) Explain(ctx context.Context, run, path string) (engine.Explanation, error) {
	var why engine.Explanation
	err := c.call(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(run)+"/explain?"+url.Values{"path": {path}}.Encode(), nil, nil, &why)
	return why, err
}

// Entity reads a key of a flow.
func (c *Client) Entity(ctx context.Context, flow, key string) (engine.EntityView, error) {
	var entity engine.EntityView
	err := c.call(ctx, http.MethodGet, "/v1/flows/"+url.PathEscape(flow)+"/keys/"+url.PathEscape(key), nil, nil, &entity)
	return entity, err
}

// Retry goes on with a run that has failed, or waits for an operator. The reason
// may be empty.
func (c *Client) Retry(ctx context.Context, id, reason string) (engine.RunView, error) {
	var run engine.RunView
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(id)+"/retry", Reason{reason}, nil, &run)
	return run, err
}

// Cancel ends a run, after it has undone what it has done when its pipeline has compensations.
// The reason may be empty.
func (c *Client) Cancel(ctx context.Context, id, reason string) (engine.RunView, error) {
	var run engine.RunView
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(id)+"/cancel", Cancellation{Reason: reason}, nil, &run)
	return run, err
}

// Abandon ends a run as it is, without undoing what it has done. The reason may be
// empty.
func (c *Client) Abandon(ctx context.Context, id, reason string) (engine.RunView, error) {
	var run engine.RunView
	undo := false
	err := c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(id)+"/cancel", Cancellation{reason, &undo}, nil, &run)
	return run, err
}

// Handlers lists the handlers with what the server's node has seen of them.
func (c *Client) Handlers(ctx context.Context) ([]engine.HandlerInfo, error) {
	var page Page[engine.HandlerInfo]
	err := c.call(ctx, http.MethodGet, "/admin/v1/handlers", nil, nil, &page)
	return page.Items, err
}

// Backlog tells what waits on all nodes.
func (c *Client) Backlog(ctx context.Context) (v engine.BacklogView, err error) {
	err = c.call(ctx, http.MethodGet, "/admin/v1/backlog", nil, nil, &v)
	return v, err
}

// Configs lists the live settings.
func (c *Client) Configs(ctx context.Context) ([]engine.ConfigView, error) {
	var page Page[engine.ConfigView]
	err := c.call(ctx, http.MethodGet, "/admin/v1/configs", nil, nil, &page)
	return page.Items, err
}

// SetConfig changes a live setting. ifRevision guards against lost updates: the
// revision that may be replaced, -1 for any.
func (c *Client) SetConfig(ctx context.Context, name string, change ConfigChange, ifRevision int64) (engine.ConfigView, error) {
	h := http.Header{}
	if ifRevision >= 0 {
		h.Set("If-Match", etag(ifRevision))
	}
	var config engine.ConfigView
	err := c.call(ctx, http.MethodPut, "/admin/v1/configs/"+url.PathEscape(name), change, h, &config)
	return config, err
}

// call sends one request and decodes the reply into out. Numbers in data stay
// as they were sent.
func (c *Client) call(ctx context.Context, method, path string, body any, h http.Header, out any) error {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	for name, values := range h {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", mediaJSON)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	reply, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	// What is cut off there does not decode: a server of something else was called.
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return fmt.Errorf("read the reply of %s: %w", req.URL, err)
	}
	if reply.StatusCode >= http.StatusBadRequest {
		return replyProblem(reply, data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("%s does not answer as procaas does: %w", req.URL, err)
	}
	return nil
}

// replyProblem reads an error. One that is not of procaas, such as of a proxy,
// has no code.
func replyProblem(reply *http.Response, data []byte) error {
	p := &Problem{}
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		p = &Problem{Title: reply.Status}
	}
	p.Status = reply.StatusCode
	p.header = http.Header{"Retry-After": reply.Header["Retry-After"]}
	return p
}

// RetryAfter tells how long to wait before the call is repeated; 0 when the
// server does not say.
func (p *Problem) RetryAfter() time.Duration {
	s, _ := strconv.Atoi(p.header.Get("Retry-After"))
	return time.Duration(max(s, 0)) * time.Second
}
