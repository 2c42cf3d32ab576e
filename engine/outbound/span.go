package outbound

import (
	"net/http"
	"net/url"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// describeRequest tells the span of an attempt, if there is one, which request it
// makes. The query is left out: secrets and personal data may be in it.
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
