package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
)

// Request calls an HTTP endpoint.
//
// A reply with an expected status is a success. Expressions read its body as
// sources.HANDLER.response and its status as sources.HANDLER.status. Any other reply, and any
// failure of the network, is an error that the handler's retry applies to. The Retry-After
// header of a reply that is an error lengthens the delay of a retry, to at most one day. It never shortens the delay, and
// never makes an error one that is retried.
//
// Every attempt has the same Idempotency-Key header, also after a restart, so that the service can
// recognise a retry. Other headers are X-Procaas-Run, X-Procaas-Path, X-Procaas-Attempt, and the
// W3C trace context: traceparent and tracestate. If the call has a deadline, X-Procaas-Time-Left
// says how many milliseconds are left.
//
//	id: get-order
//	request:
//	  service: orders
//	  path: /v1/orders
//	  query:
//	    id: !$ event.payload['order-id']
//	  expect: [2xx, 404]
//	result:
//	  order: !$ sources.get-order.response
type Request struct {
	// URL is the absolute http or https URL of the endpoint. If the files declare services, its host must belong to one
	// of them. Otherwise its address must be public. It may also be on this machine if the host is literal and not
	// computed, and is localhost or an address.
	URL string `yaml:"url"`

	// Service is the id of a declared service. Use it with path, instead of url.
	Service string `yaml:"service"`

	// Path is the path below the URL of the service. It is plain text: the node escapes everything
	// that needs it, except slashes.
	Path string `yaml:"path"`

	// Method is the HTTP method. Its default is POST for a request with body, form, multipart, cloudevent or raw, and GET otherwise.
	Method string `yaml:"method" enum:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS"`

	// Query has the parameters after the question mark. A list repeats its parameter, and null omits it.
	Query map[string]any `yaml:"query"`

	// Headers are added to the headers of the engine. null omits a header.
	Headers map[string]any `yaml:"headers"`

	// Body is sent as JSON.
	Body any `yaml:"body"`

	// Form is sent as application/x-www-form-urlencoded. Its values are as in query.
	Form map[string]any `yaml:"form"`

	// Multipart is sent as multipart/form-data, part by part in this order. It can have files.
	Multipart []Part `yaml:"multipart"`

	// CloudEvent is sent as a CloudEvent 1.0. Its id is the Idempotency-Key, so a receiver recognises an event that comes again. Its
	// partitionkey is the key of the flow.
	CloudEvent *CloudEvent `yaml:"cloudevent"`

	// Raw is text to send unchanged. It cannot contain a secret. Neither can url, path, method and content-type,
	// because logs and errors show them.
	Raw *string `yaml:"raw"`

	// ContentType is the content type of the request. Its default is application/json for body,
	// application/x-www-form-urlencoded for form and text/plain for raw.
	ContentType string `yaml:"content-type"`

	// Sign signs the body as Standard Webhooks are signed: with !secret NAME, whose value is base64 behind whsec_, or with a
	// list of such secrets. The request then has the headers Webhook-Id, Webhook-Timestamp and Webhook-Signature. The id is
	// the same for every attempt.
	Sign any `yaml:"sign"`

	// Expect lists the statuses of a success: single ones such as 404, or classes such as 2xx.
	Expect spec.Names `yaml:"expect" default:"2xx" pattern:"status"`

	// Response says how to read the reply: as json, as text, as bytes, which become text in base64, or none to drop it. auto uses
	// the content type of the reply. If that is text or missing, auto reads an object or list in JSON as JSON, and anything else as text. A
	// 204 is null, and so is an empty reply with auto. A reply that cannot be read is an error without a retry, because the
	// request took effect.
	Response string `yaml:"response" enum:"auto,json,text,bytes,none" default:"auto"`

	// MaxResponse is the largest size of a reply, even if it is dropped. Its default is 1MiB. A
	// larger reply is an error without a retry.
	MaxResponse datum.Bytes `yaml:"max-response" min:"1" max:"64MiB"`

	// Redirects is how many redirects the node follows. With 0 a redirect is a reply like any other. The node never
	// sends headers of the pipeline to another host.
	Redirects int `yaml:"redirects" default:"0" min:"0" max:"10"`

	// RedirectAsGet lets a redirect 301 or 302 make a GET without a body of a request with another method, as browsers
	// do. Otherwise such a redirect is an error without a retry. A 303 always makes a GET of it.
	RedirectAsGet bool `yaml:"redirect-as-get"`

	// Timeout is the longest time of one attempt. Its default is the timeout of the handler, then
	// that of the service, then 5s.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}

// Part is one part of a multipart body. It has one of text, json and base64. A part whose value is null is left out.
type Part struct {
	// Name is the name of the part.
	Name string `yaml:"name" required:"true"`

	// Text is sent as text. A number or boolean is sent as in query.
	Text any `yaml:"text"`

	// JSON is sent as JSON.
	JSON any `yaml:"json"`

	// Base64 is text in base64, as response: bytes makes it. The part has the bytes.
	Base64 *string `yaml:"base64"`

	// FileName is the name of the file that the part is. Most services need it to take the part for a file.
	FileName string `yaml:"file-name"`

	// ContentType is the content type of the part. Its default is text/plain; charset=utf-8 for text, application/json for json
	// and application/octet-stream for base64.
	ContentType string `yaml:"content-type"`
}

// CloudEvent is the event that a request sends. It has no field for the id, which is the Idempotency-Key of the call.
type CloudEvent struct {
	// Type says what has happened, such as com.example.order.paid.
	Type string `yaml:"type" required:"true"`

	// Source is where it has happened, as a URI or a path. Its default is /PIPELINE. It belongs to the identity of the event.
	Source string `yaml:"source"`

	// Subject is what it has happened to, within the source.
	Subject string `yaml:"subject"`

	// Time is when it has happened. Without it, the event has none.
	Time time.Time `yaml:"time"`

	// Data is what the event says, as JSON.
	Data any `yaml:"data"`

	// Mode is where the attributes are: structured for the body, beside the data, or binary for headers. sign covers the body only.
	Mode string `yaml:"mode" enum:"structured,binary" default:"structured"`
}

// These are the defaults if neither the handler nor the service nor the node sets them.
const (
	defaultTimeout  = 5 * time.Second
	defaultMaxReply = 1 << 20 // bytes
)

// KeepsBody says that a request only reads what it sends, and that its result is what the service replies.
func (r *Request) KeepsBody() {}

// Handle implements [engine.Handler].
func (r *Request) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	left := timeLeft{c.TimeLeft, time.Now()}
	ctx, cancel := r.bound(ctx, c)
	defer cancel()
	s := secrets{resolve: c.Resolve, hide: c.Hide}
	result, err := r.answer(ctx, c, left, &s)
	if network, ok := errors.AsType[*url.Error](err); ok && errors.Is(network.Err, context.DeadlineExceeded) {
		network.Err = &lateError{time.Since(left.began), r.limit(c), network.Err}
	}
	return result, err
}

// answer makes the request and reads its reply.
func (r *Request) answer(ctx context.Context, c *engine.Call, left timeLeft, s *secrets) (model.Result, error) {
	resp, err := r.ask(ctx, c, left, s)
	if err != nil {
		return model.Result{}, err
	}
	defer resp.Body.Close()
	return r.read(c, resp, s)
}

// A lateError says that a service has not answered in time.
type lateError struct {
	waited, limit time.Duration
	cause         error
}

// Error implements error. A deadline of the run may have ended the call well before its timeout. The engine starts the
// timeout of a handler a little earlier than the call begins.
func (e *lateError) Error() string {
	if e.waited < e.limit*9/10 {
		return "no whole answer before the deadline"
	}
	return "no whole answer within " + e.limit.String()
}

// Unwrap returns the cause.
func (e *lateError) Unwrap() error { return e.cause }

// Timeout reports that this is a timeout, for [model.ClassOf].
func (*lateError) Timeout() bool { return true }

// ask makes the request with the credentials of its service, if that has any, and once more with others after a 401.
func (r *Request) ask(ctx context.Context, c *engine.Call, left timeLeft, s *secrets) (*http.Response, error) {
	service := r.authorized(c)
	if service == nil {
		return r.try(ctx, c, left, s, "")
	}
	credentials, err := c.Authorization(ctx, service, "")
	if err != nil {
		return nil, err
	}
	resp, err := r.try(ctx, c, left, s, credentials)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || r.expected(resp.StatusCode) {
		return resp, err
	}
	credentials, err = c.Authorization(ctx, service, credentials)
	if err == nil && credentials == "" {
		return resp, nil
	}
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	return r.try(ctx, c, left, s, credentials)
}

// authorized returns the service that the request names, if it wants credentials. A request with a url gets none: its path may come
// from data, which must not choose what the credentials are used for.
func (r *Request) authorized(c *engine.Call) *tree.Service {
	if r.Service == "" || c.Authorization == nil {
		return nil
	}
	s := c.Bundle.Service(r.Service)
	if s == nil || s.Auth == nil {
		return nil
	}
	return s
}

// try builds the request and makes it.
func (r *Request) try(ctx context.Context, c *engine.Call, left timeLeft, s *secrets, credentials string) (*http.Response, error) {
	req, err := r.build(ctx, c, s)
	if err != nil {
		return nil, model.Permanent(err)
	}
	if credentials != "" {
		req.Header.Set("Authorization", credentials)
		s.authorizes = true
	}
	if c.Sent != nil {
		c.Sent(req.ContentLength)
	}
	resp, err := r.send(c, left.traced(req), left, s)
	if err != nil {
		return nil, networkError(req, err)
	}
	return resp, nil
}

// bound sets the timeout of the attempt. That of the handler, which is in ctx, replaces that of the
// service.
func (r *Request) bound(ctx context.Context, c *engine.Call) (context.Context, context.CancelFunc) {
	if r.Timeout == 0 && c.Timeout > 0 {
		return ctx, func() {}
	}
	return clock.WithTimeout(ctx, r.limit(c))
}

// limit returns the timeout of an attempt.
func (r *Request) limit(c *engine.Call) time.Duration {
	if own := cmp.Or(r.Timeout, c.Timeout); own > 0 {
		return own
	}
	if r.Service != "" {
		if s := c.Bundle.Service(r.Service); s != nil && s.Timeout > 0 {
			return s.Timeout
		}
	}
	return defaultTimeout
}

// send makes the request. A client adds redirects, cookies and a timeout. If none of these is
// needed, it uses the transport directly, which is cheaper.
func (r *Request) send(c *engine.Call, req *http.Request, left timeLeft, s *secrets) (*http.Response, error) {
	if h := r.http(c); r.Redirects == 0 && h.Transport != nil && h.Jar == nil && h.Timeout == 0 {
		return h.Transport.RoundTrip(req)
	}
	return r.client(c, left, s).Do(req)
}

// http returns the client of the service that the request names, or that of all others. A request with a url shows no
// certificate, as it gets no credentials.
func (r *Request) http(c *engine.Call) *http.Client {
	if own := c.Secured[r.Service]; own != nil {
		return own
	}
	return c.HTTP
}

// client returns the shared client with this request's redirects. The copy is cheap, because
// connections belong to its transport.
func (r *Request) client(c *engine.Call, left timeLeft, s *secrets) *http.Client {
	client := *r.http(c)
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		// via includes the first request, so at the first redirect its length is 1.
		if len(via) > r.Redirects {
			return http.ErrUseLastResponse
		}
		// A service must not redirect us to where the pipeline itself may not go.
		if err := checkTarget(c.Bundle, req.URL); err != nil {
			return model.Permanent(err)
		}
		if status, was := req.Response.StatusCode, via[len(via)-1].Method; !r.RedirectAsGet && was != req.Method &&
			(status == http.StatusMovedPermanently || status == http.StatusFound) {
			return model.Permanent(fmt.Errorf("reply %d redirects the %s to %s, which would get a %s without the body; call that address, "+
				"let the service answer 307 or 308, or write redirect-as-get: true", status, was, publicURL(req.URL), req.Method))
		}
		left.tell(req.Header)
		if leftOrigin(req, via) {
			if s.inBody && req.Body != nil {
				return model.Permanent(fmt.Errorf("service %s redirects to %s, which would get the body with its secrets; "+
					"send them in headers, which are not sent on, or call that service itself", s.to, origin(req.URL)))
			}
			r.dropHeaders(req.Header)
			if s.authorizes {
				req.Header.Del("Authorization")
			}
		}
		return nil
	}
	return &client
}

// leftOrigin reports whether a chain of redirects has ever left its first host. A return to that
// host does not help, because the other host has chosen the request.
func leftOrigin(req *http.Request, via []*http.Request) bool {
	home := origin(via[0].URL)
	for _, v := range via[1:] {
		if origin(v.URL) != home {
			return true
		}
	}
	return origin(req.URL) != home
}

// networkError wraps the cause for errors.As and leaves the query out of the text, because it may
// contain secrets or personal data.
func networkError(req *http.Request, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &url.Error{Op: req.Method, URL: publicURL(req.URL), Err: err}
}

// publicURL returns the part of a URL that logs and errors may show.
func publicURL(u *url.URL) string {
	public := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return public.String()
}
