package handlers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"procaas/dsl/datum"
	"procaas/dsl/spec"
	"procaas/engine"
	"procaas/engine/clock"
	"procaas/engine/model"
)

//go:embed request.go
var requestSource string

// Request calls an HTTP endpoint.
//
// A reply with an expected status is a success, and what it says can be read as
// sources.HANDLER.response, its status as sources.HANDLER.status. Any other reply
// and any failure of the network is an error, which is repeated as the handler's
// retry says; the Retry-After header of a reply 408, 425, 429 or 5xx is respected,
// up to a day.
//
// Every attempt carries the same Idempotency-Key header, also after a restart, so
// that the service can tell a repetition; besides, X-Procaas-Run, X-Procaas-Path,
// X-Procaas-Attempt, and the W3C trace context: traceparent and tracestate.
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
	// URL is the endpoint, absolute, http or https. When services are declared,
	// its host must belong to one of them. Otherwise its address must be public,
	// or, for a host that is written here and not computed, of this machine.
	URL string `yaml:"url"`

	// Service is the id of a declared service; give it with path instead of url.
	Service string `yaml:"service"`

	// Path is the path below the URL of the service. It is plain text: what needs
	// escaping is escaped, all but the slash.
	Path string `yaml:"path"`

	// Method is the HTTP method. When it is left out, it is POST for a request
	// with a body, form or raw, and GET for one without.
	Method string `yaml:"method" enum:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS"`

	// Query holds the parameters after the question mark. A list repeats its
	// parameter, null leaves it out.
	Query map[string]any `yaml:"query"`

	// Headers are sent besides the engine's own; null leaves one out.
	Headers map[string]any `yaml:"headers"`

	// Body is sent as JSON.
	Body any `yaml:"body"`

	// Form is sent as application/x-www-form-urlencoded; its values are as in
	// query.
	Form map[string]any `yaml:"form"`

	// Raw is a text that is sent as it is. It takes no secret, nor do url, path,
	// method and content-type: these show in logs and errors.
	Raw *string `yaml:"raw"`

	// ContentType says what the body is: application/json,
	// application/x-www-form-urlencoded or text/plain when it is left out, as
	// fits body, form or raw.
	ContentType string `yaml:"content-type"`

	// Expect lists the statuses of success: single ones such as 404, or classes
	// such as 2xx.
	Expect spec.Names `yaml:"expect" default:"2xx" pattern:"status"`

	// Response says how the reply is read: json, text, or none, which drops it.
	// auto goes by the content type of the reply; where that is text or left
	// out, an object or a list in JSON is read as such, anything else as text. A
	// 204 is null, as is an empty reply with auto. What is not as it should be is an
	// error that is not repeated: the request has taken effect.
	Response string `yaml:"response" enum:"auto,json,text,none" default:"auto"`

	// MaxResponse is the size that the reply must not exceed, also one that is
	// dropped; 1MiB when it is left out. A larger one is an error that is not
	// repeated.
	MaxResponse datum.Bytes `yaml:"max-response" min:"1" max:"64MiB"`

	// Redirects is how many redirects are followed. Without, a redirect is a reply
	// like any other. Headers of the pipeline are not sent to another host.
	Redirects int `yaml:"redirects" default:"0" min:"0" max:"10"`

	// Timeout bounds one attempt. When it is left out, the timeout of the handler
	// counts, else that of the service, else 5s.
	Timeout time.Duration `yaml:"timeout" min:"1ms"`
}

// What counts where neither the handler, nor the service, nor the node says anything.
const (
	defaultTimeout  = 5 * time.Second
	defaultMaxReply = 1 << 20 // bytes
)

// Handle implements [engine.Handler].
func (r *Request) Handle(ctx context.Context, c *engine.Call) (model.Result, error) {
	ctx, cancel := r.bound(ctx, c)
	defer cancel()
	s := secrets{resolve: c.Resolve, hide: c.Hide}
	req, err := r.build(ctx, c, &s)
	if err != nil {
		return model.Result{}, model.Permanent(err)
	}
	resp, err := r.send(c, req, &s)
	if err != nil {
		return model.Result{}, networkError(req, err)
	}
	defer resp.Body.Close()
	return r.read(c, resp, &s)
}

// bound gives the attempt its timeout. A deadline in ctx is the handler's own
// timeout, which then counts alone.
func (r *Request) bound(ctx context.Context, c *engine.Call) (context.Context, context.CancelFunc) {
	if r.Timeout > 0 {
		return clock.WithTimeout(ctx, r.Timeout)
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	if r.Service != "" {
		if s := c.Bundle.Service(r.Service); s != nil && s.Timeout > 0 {
			return clock.WithTimeout(ctx, s.Timeout)
		}
	}
	return clock.WithTimeout(ctx, defaultTimeout)
}

// send makes the request. What a client does besides is for redirects, cookies and a
// timeout of its own; where none of these is wanted, the transport does the same with
// less work for each request.
func (r *Request) send(c *engine.Call, req *http.Request, s *secrets) (*http.Response, error) {
	if h := c.HTTP; r.Redirects == 0 && h.Transport != nil && h.Jar == nil && h.Timeout == 0 {
		return h.Transport.RoundTrip(req)
	}
	return r.client(c, s).Do(req)
}

// client is the shared client with this request's redirects. A copy costs
// nothing: connections belong to its transport.
func (r *Request) client(c *engine.Call, s *secrets) *http.Client {
	client := *c.HTTP
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		// via holds the first request, too: at the first redirect it is 1 long.
		if len(via) > r.Redirects {
			return http.ErrUseLastResponse
		}
		// A service must not send us where the pipeline itself may not go.
		if err := checkTarget(c.Bundle, req.URL); err != nil {
			return model.Permanent(err)
		}
		if leftOrigin(req, via) {
			if s.inBody && req.Body != nil {
				return model.Permanent(fmt.Errorf("service %s redirects to %s, which would get the body with its secrets; "+
					"send them in headers, which are not sent on, or call that service itself", s.to, origin(req.URL)))
			}
			r.dropHeaders(req.Header)
		}
		return nil
	}
	return &client
}

// leftOrigin tells whether a chain of redirects has ever left the place that it
// began at. Coming back does not count as never having left: the other host has
// chosen what is asked for.
func leftOrigin(req *http.Request, via []*http.Request) bool {
	home := origin(via[0].URL)
	for _, v := range via[1:] {
		if origin(v.URL) != home {
			return true
		}
	}
	return origin(req.URL) != home
}

// networkError keeps the cause for errors.As and leaves the query out of the
// text: secrets and personal data may be in it.
func networkError(req *http.Request, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &url.Error{Op: req.Method, URL: publicURL(req.URL), Err: err}
}

// publicURL is what logs and errors may show of an URL.
func publicURL(u *url.URL) string {
	public := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return public.String()
}
