package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/outbound"
)

// build makes the HTTP request. Its errors are mistakes in the pipeline, so a retry is useless.
func (r *Request) build(ctx context.Context, c *engine.Call, s *secrets) (*http.Request, error) {
	target, err := r.target(c.Bundle, s)
	if err != nil {
		return nil, err
	}
	s.given = false
	text, contentType, err := r.payload(c, s)
	if err != nil {
		return nil, err
	}
	s.inBody = s.given
	var body io.Reader
	if contentType != "" {
		// net/http knows the length of a strings.Reader, and can send it again after a redirect or on another connection.
		body = strings.NewReader(text)
	}
	// The URL is set below, because it is parsed already.
	req, err := http.NewRequestWithContext(ctx, r.method(), "", body)
	if err != nil {
		return nil, fmt.Errorf("method: %w", err)
	}
	req.URL, req.Host = target, target.Host
	h := newHeader(req)
	if body != nil {
		h.set("Content-Type", contentType)
	}
	h.set("User-Agent", "procaas")
	if err := r.header(req.Header, s); err != nil {
		return nil, err
	}
	// Last, so that the pipeline's headers cannot replace these.
	h.identify(c)
	if err := r.CloudEvent.header(req.Header, c); err != nil {
		return nil, err
	}
	if err := r.sign(req, c, s, text); err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return req, nil
}

// sign adds the headers of Standard Webhooks, if the request is to be signed.
func (r *Request) sign(req *http.Request, c *engine.Call, s *secrets, body string) error {
	open, err := s.reveal(r.Sign)
	if err != nil || open == nil {
		return err
	}
	var keys []string
	list, isList := open.([]any)
	if !isList {
		list = []any{open}
	}
	for _, key := range list {
		text, ok := key.(string)
		if !ok {
			return errors.New("want a secret")
		}
		keys = append(keys, text)
	}
	signatures, err := outbound.SignWebhook(keys, c.IdempotencyKey, c.Now, body)
	if err != nil {
		return err
	}
	req.Header.Set("Webhook-Id", c.IdempotencyKey)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(c.Now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signatures)
	return nil
}

// method returns the HTTP method. Like curl, a request with data is a POST.
func (r *Request) method() string {
	switch {
	case r.Method != "":
		return r.Method
	case r.Body != nil || r.Form != nil || r.Multipart != nil || r.CloudEvent != nil || r.Raw != nil:
		return http.MethodPost
	default:
		return http.MethodGet
	}
}

// target returns the complete URL, and checks that the pipeline may reach it.
func (r *Request) target(b *tree.Bundle, s *secrets) (*url.URL, error) {
	u, err := r.endpoint(b)
	if err != nil {
		return nil, err
	}
	s.to = r.Service
	if r.Service == "" { // the address of a service is declared
		if err := checkTarget(b, u); err != nil {
			return nil, err
		}
		if service := serviceAt(b, u); service != nil {
			s.to = service.ID
		}
	}
	if len(r.Query) == 0 {
		return u, nil
	}
	values, err := encode("query", r.Query, s)
	if err != nil {
		return nil, err
	}
	// The url may have a query of its own, and so may the service's.
	if u.RawQuery != "" && len(values) > 0 {
		u.RawQuery += "&"
	}
	u.RawQuery += values.Encode()
	return u, nil
}

// endpoint returns the URL without the query. It is below the address of a service, which --service
// may change, or the url.
func (r *Request) endpoint(b *tree.Bundle) (*url.URL, error) {
	if r.Service == "" {
		return parseTarget(r.URL)
	}
	service := b.Service(r.Service)
	if service == nil {
		return nil, fmt.Errorf("service %q is not declared", r.Service)
	}
	u, err := parseTarget(service.Address())
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service.ID, err)
	}
	if err := checkPath(r.Path); err != nil {
		return nil, err
	}
	// With an empty RawPath, net/url escapes the path, so that a ? or # in a user's text stays a
	// part of it.
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+r.Path, ""
	return u, nil
}

// checkPath refuses paths that could leave the service's own path, such as one that contains a
// user's text.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("path must begin with /, have %q", path)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("path must not hold the segments . and .., have %q", path)
		}
	}
	return nil
}

// parseTarget parses an absolute http or https URL.
func parseTarget(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("url: %w", errors.Unwrap(err))
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, fmt.Errorf("url must be absolute, such as http://orders.example/v1/orders, have %q", text)
	// Go would send it as a header, but logs and errors show the URL.
	case u.User != nil:
		return nil, errors.New("url must not hold a user and password: send them as a header with !secret")
	}
	u.RawQuery = escapeQuery(u.RawQuery)
	return u, nil
}

// escapeQuery escapes characters that a query must not contain, such as a space in a user's text.
// Separators and escaped characters stay, as net/url does for paths.
func escapeQuery(raw string) string {
	b := make([]byte, 0, len(raw))
	for i := range len(raw) {
		c := raw[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~!$&'()*+,;=:@/?%[]", c) >= 0:
			b = append(b, c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

// checkTarget returns an error if a request may not go to u. If services are declared, it may go
// only to them. A pipeline may compute its url from users' data, and must not let users reach the
// internal network.
func checkTarget(b *tree.Bundle, u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s is neither http nor https", publicURL(u))
	}
	// Then the transport checks the address: see [outbound.Reach].
	if len(b.Services) == 0 {
		return nil
	}
	if serviceAt(b, u) != nil {
		return nil
	}
	return fmt.Errorf("%s belongs to no declared service: %s", origin(u), listServices(b))
}

// serviceAt returns the declared service at the origin of a URL, or nil.
func serviceAt(b *tree.Bundle, u *url.URL) *tree.Service {
	for _, s := range b.Services {
		// Redirects may lead to either address: that in the file, and that of --service.
		for _, address := range []string{s.URL, s.Address()} {
			known, err := url.Parse(address)
			if err == nil && origin(known) == origin(u) {
				return s
			}
		}
	}
	return nil
}

// origin returns scheme, host and port, which identify a service. It includes the default port, so
// that https://a and https://a:443 are the same.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// listServices lists the declared services for messages.
func listServices(b *tree.Bundle) string {
	names := make([]string, len(b.Services))
	for i, s := range b.Services {
		names[i] = fmt.Sprintf("%s (%s)", s.ID, s.URL)
	}
	return strings.Join(names, ", ")
}

// payload returns the body and its content type. Both are empty for a request without a body.
func (r *Request) payload(c *engine.Call, s *secrets) (text, contentType string, err error) {
	text, contentType, err = r.encodeBody(c, s)
	if err != nil || contentType == "" {
		return "", "", err
	}
	if r.ContentType != "" {
		contentType = r.ContentType
	}
	if hasControls(contentType) { // the transport would report it as a network error, which would be retried in vain
		return "", "", errors.New("content-type: control characters are not allowed")
	}
	return text, contentType, nil
}

// encodeBody returns the text of the body and its type. Both are empty for a request without a
// body.
func (r *Request) encodeBody(c *engine.Call, s *secrets) (text, contentType string, err error) {
	switch {
	case r.Raw != nil:
		return *r.Raw, "text/plain; charset=utf-8", nil
	case r.Form != nil:
		values, err := encode("form", r.Form, s)
		return values.Encode(), "application/x-www-form-urlencoded", err
	case r.Multipart != nil:
		return encodeParts(r.Multipart, s)
	case r.CloudEvent != nil:
		return r.CloudEvent.encode(c, s)
	case r.Body != nil:
		open, err := s.reveal(r.Body)
		if err != nil {
			return "", "", fmt.Errorf("body: %w", err)
		}
		data, err := datum.FormatJSON(open)
		if err != nil {
			return "", "", fmt.Errorf("body: %w", err)
		}
		return string(data), "application/json", nil
	}
	return "", "", nil
}

// header adds the pipeline's headers.
func (r *Request) header(h http.Header, s *secrets) error {
	if len(r.Headers) == 0 {
		return nil
	}
	// Sorted, so that the same mistake gives the same error in each attempt.
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if err := checkHeaderName(name); err != nil {
			return err
		}
		open, err := s.reveal(r.Headers[name])
		if err != nil {
			return fmt.Errorf("headers: %s: %w", name, err)
		}
		if open == nil {
			continue
		}
		text, err := scalar(open)
		if err != nil {
			return fmt.Errorf("headers: %s: %w", name, err)
		}
		if hasControls(text) {
			return fmt.Errorf("headers: %s: control characters are not allowed", name)
		}
		h.Set(name, text)
	}
	return nil
}

// hasControls reports whether a text has characters that a header value must not contain, such as a
// line break, with which a user's text could add a header.
func hasControls(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// dropHeaders removes the pipeline's headers, so that another host does not see them.
func (r *Request) dropHeaders(h http.Header) {
	for name := range r.Headers {
		h.Del(name)
	}
	h.Del("Webhook-Signature")
	h.Del("Referer") // it would reveal the query of the first request
}

// reserved headers belong to the engine, or to the framing of a message.
var reserved = []string{
	"Connection", "Content-Length", "Host", "Idempotency-Key", "Keep-Alive", "Te", "Trailer",
	"Traceparent", "Tracestate", "Transfer-Encoding", "Upgrade", "X-Procaas-Attempt", "X-Procaas-Path", "X-Procaas-Run",
	timeLeftHeader,
}

// timeLeftHeader has the whole milliseconds until the deadline, as of the writing of the request.
// It is a duration, because clocks differ.
const timeLeftHeader = "X-Procaas-Time-Left"

// timeLeft is how much time was left at a moment.
type timeLeft struct {
	left  time.Duration // 0 without a deadline
	began time.Time
}

// tell sets the header to the time that is left now.
func (t timeLeft) tell(h http.Header) {
	if t.left > 0 {
		tellTimeLeft(h, t.left-time.Since(t.began))
	}
}

// traced sets the header again when there is a connection, because a new one takes time. It does so
// only once, because the transport may still read the headers when it repeats a request.
func (t timeLeft) traced(req *http.Request) *http.Request {
	if t.left <= 0 {
		return req
	}
	var once sync.Once
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { once.Do(func() { t.tell(req.Header) }) },
	}))
}

func tellTimeLeft(h http.Header, left time.Duration) {
	h.Set(timeLeftHeader, strconv.FormatInt(max(0, left.Milliseconds()), 10))
}

// checkHeaderName refuses invalid names, and headers that the engine or the fields of the handler
// set.
func checkHeaderName(name string) error {
	token := func(c rune) bool {
		return c > ' ' && c < 0x7f && !strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	}
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !token(c) }):
		return fmt.Errorf("headers: %q is no name of a header", name)
	case canonical == "Content-Type":
		return errors.New("headers: Content-Type is set by the field content-type")
	case slices.Contains(reserved, canonical):
		return fmt.Errorf("headers: %s is set by the engine and cannot be changed", name)
	}
	return nil
}

// A header is the header of a request whose names are canonical already. Its values share their memory.
type header struct {
	lines  http.Header
	values []string
}

// newHeader gives a request an empty header with room for what the engine sets in most of them. A map
// of up to eight is a single piece of memory.
func newHeader(req *http.Request) *header {
	const most = 8
	req.Header = make(http.Header, most)
	return &header{req.Header, make([]string, 0, most)}
}

// set sets a header.
func (h *header) set(name, value string) {
	h.values = append(h.values, value)
	at := len(h.values) - 1
	h.lines[name] = h.values[at : at+1 : at+1]
}

// identify adds headers that identify the caller and repeated calls.
func (h *header) identify(c *engine.Call) {
	// The same for all attempts of the call, also after a restart. X-Procaas-Attempt distinguishes
	// them.
	h.set("Idempotency-Key", c.IdempotencyKey)
	h.set("X-Procaas-Run", c.Run)
	h.set("X-Procaas-Path", c.Path)
	h.set("X-Procaas-Attempt", strconv.Itoa(c.Attempt))
	if c.TimeLeft > 0 {
		tellTimeLeft(h.lines, c.TimeLeft)
	}
	if c.TraceParent != "" {
		h.set("Traceparent", c.TraceParent)
	}
	if c.TraceState != "" {
		h.set("Tracestate", c.TraceState)
	}
}

// encode encodes query or form: a list repeats its name, and null is omitted. [url.Values] are
// written sorted by name, so every attempt sends the same bytes.
func encode(field string, data map[string]any, s *secrets) (url.Values, error) {
	values := make(url.Values, len(data))
	for name, value := range data {
		open, err := s.reveal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", field, name, err)
		}
		items, ok := open.([]any)
		if !ok {
			items = []any{open}
		}
		for _, item := range items {
			if item == nil {
				continue
			}
			text, err := scalar(item)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", field, name, err)
			}
			values.Add(name, text)
		}
	}
	return values, nil
}

// scalar formats a simple value. Numbers have no exponent, because most services expect ids without
// one.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "", fmt.Errorf("want a finite number, have %v", v)
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		return "", errors.New("want a simple value, have a list")
	case map[string]any:
		return "", errors.New("want a simple value, have a mapping")
	}
	return "", fmt.Errorf("want a simple value, have %T", value)
}
