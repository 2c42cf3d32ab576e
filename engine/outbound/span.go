package outbound

import (
	"net/http"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// describeRequest adds the request to the span of an attempt, if there is one. It leaves the query
// out, because it may contain secrets or personal data.
func describeRequest(r *http.Request) {
	span := trace.SpanFromContext(r.Context())
	if !span.IsRecording() {
		return
	}
	public := url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path}
	span.SetAttributes(
		attribute.String("http.request.method", r.Method),
		attribute.String("url.full", public.String()),
		attribute.String("server.address", r.URL.Hostname()),
	)
}
