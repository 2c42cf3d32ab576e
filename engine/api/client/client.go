// Package client calls the API of a server.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
)

// A Client calls the API of a server. Errors from the server are [*problem.Problem]. After any
// other error, the outcome of the call is unknown. It is safe for concurrent use.
type Client struct {
	base  string // without a slash at the end
	token string // empty for none
	http  *http.Client
}

// callTime bounds one call. The server gives up earlier.
const callTime = 15 * time.Second

// maxReply bounds what is read of a reply, in bytes.
const maxReply = 64 << 20

// New makes a client of the server at base, such as http://127.0.0.1:8080. The token may be empty.
func New(base, token string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{Timeout: callTime}}
}

// Unverified returns a client that does not check the certificate of the server, and so has no token. It is for questions about the
// process behind an address.
func (c *Client) Unverified() *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()      //nolint:forcetypeassert // it always is
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // that is the purpose
	return &Client{base: c.base, http: &http.Client{Timeout: c.http.Timeout, Transport: transport}}
}

// WithCertificate returns a client that shows a certificate, from PEM files, where a server asks for one.
func (c *Client) WithCertificate(cert, key string) (*Client, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client certificate %s with key %s: %w", cert, key, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it always is
	transport.TLSClientConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	shows := *c
	shows.http = &http.Client{Timeout: c.http.Timeout, Transport: transport}
	return &shows, nil
}

// Lasting returns a client for calls that the server may answer this much later.
func (c *Client) Lasting(wait time.Duration) *Client {
	longer := *c
	longer.http = &http.Client{Timeout: callTime + wait, Transport: c.http.Transport}
	return &longer
}

// Segment encodes text as one segment of a path. So are . and .., which a server would otherwise take for steps.
func Segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

// Send sends one request with a body as JSON, and decodes the reply. A nil body
// sends none. The path may have a query.
func Send[T any](ctx context.Context, c *Client, method, path string, body any, h http.Header) (reply T, err error) {
	err = c.call(ctx, method, path, body, h, &reply)
	return reply, err
}

// queryOf makes a query without empty values.
func queryOf(said map[string]string) url.Values {
	q := url.Values{}
	for name, value := range said {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// timeText formats a time for the API, or returns empty for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// limitText formats a page limit, or returns empty for the default.
func limitText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// List reads a list that has one page.
func List[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	page, err := Send[wire.Page[T]](ctx, c, http.MethodGet, path, nil, nil)
	return page.Items, err
}

// call sends one request and decodes the reply into out. Numbers in data keep their form.
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
	maps.Copy(req.Header, h)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	reply, err := c.http.Do(req)
	if _, unknown := errors.AsType[*tls.CertificateVerificationError](err); unknown {
		return fmt.Errorf("%w; if the certificate is right, name a file with that of its issuer in the variable SSL_CERT_FILE", err)
	}
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	// A reply that is cut off does not decode: it is from another kind of server.
	data, err := io.ReadAll(io.LimitReader(reply.Body, maxReply))
	if err != nil {
		return fmt.Errorf("read the reply of %s: %w", req.URL, err)
	}
	if reply.StatusCode >= http.StatusBadRequest {
		err := replyProblem(reply, data)
		if reply.StatusCode >= http.StatusInternalServerError {
			err = fmt.Errorf("%s: %w", c.base, err) // of several nodes, one may be at fault
		}
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("%s does not answer as procaas does: %w", req.URL, err)
	}
	return nil
}

// replyProblem decodes an error. One that is not from procaas, such as a proxy's, has no code.
func replyProblem(reply *http.Response, data []byte) error {
	p := &problem.Problem{}
	if json.Unmarshal(data, p) != nil || p.Code == "" {
		p = &problem.Problem{Title: reply.Status}
	}
	p.Status = reply.StatusCode
	p.Header = http.Header{"Retry-After": reply.Header["Retry-After"]}
	return p
}
