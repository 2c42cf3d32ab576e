package main

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

// A collectorStub takes spans and metrics in over OTLP/HTTP.
type collectorStub struct {
	t  *testing.T
	mu sync.Mutex // guards the following

	calls     map[string]bool   // labels of counted calls
	exemplars map[string]string // the trace of one duration of each histogram, by its name

	spans    map[string]string // the parent of each span, by name
	traces   map[string]bool
	resource map[string]string
	all      bytes.Buffer // what was sent, as text
	header   http.Header
}

func (c *collectorStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	if err != nil {
		c.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path == "/v1/metrics" {
		c.takeMetrics(data)
		return
	}
	var sent collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s: want spans in protobuf, have %v", r.URL.Path, err)
	}
	c.header = r.Header
	fmt.Fprintln(&c.all, &sent)
	for _, rs := range sent.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[s.Name] = hex.EncodeToString(s.ParentSpanId)
				c.spans[hex.EncodeToString(s.SpanId)] = s.Name
				c.traces[hex.EncodeToString(s.TraceId)] = true
			}
		}
	}
}

func (c *collectorStub) takeMetrics(data []byte) {
	var sent collectmetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(data, &sent); err != nil {
		c.t.Errorf("want metrics in protobuf, have %v", err)
	}
	fmt.Fprintln(&c.all, &sent)
	for _, rm := range sent.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				for _, point := range m.GetHistogram().GetDataPoints() {
					for _, e := range point.Exemplars {
						c.exemplars[m.Name] = hex.EncodeToString(e.TraceId)
					}
				}
				if m.Name != "procaas_handler_calls_total" {
					continue
				}
				for _, point := range m.GetSum().GetDataPoints() {
					for _, a := range point.Attributes {
						c.calls[a.Value.GetStringValue()] = true
					}
				}
			}
		}
	}
}

// TestTelemetryGoesToTheCollector follows one event from its sender through a node to a service: all in the sender's trace. The
// metrics of the node go there, too, as the environment asks.
func TestTelemetryGoesToTheCollector(t *testing.T) { // not parallel: it sets the environment
	stub := &collectorStub{
		t: t, spans: map[string]string{}, traces: map[string]bool{}, resource: map[string]string{}, calls: map[string]bool{},
		exemplars: map[string]string{},
	}
	server := httptest.NewServer(stub)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=taxi")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
	t.Setenv("PROCAAS_SECRET_TOKEN", "canary-7f3a")

	asked := make(chan http.Header, 1)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{}`)
	}))
	t.Cleanup(service.Close)
	o := operateNode(t, fmt.Sprintf(`services: [{id: push, url: %s}]
pipelines:
  - id: work
    stages:
      - id: tell
        handlers:
          - {id: user, request: {service: push, path: /v1/push, query: {q: !secret TOKEN}, headers: {Authorization: !secret TOKEN}}}
`, service.URL))

	const trace, sender = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.server+"/v1/events",
		strings.NewReader(`{"type": "work", "id": "e-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+sender+"-01")
	request.Header.Add("Tracestate", "congo=t61rcWkgMzE")
	request.Header.Add("Tracestate", "rojo=00f067")
	reply, err := http.DefaultClient.Do(request)
	if err != nil || reply.StatusCode != http.StatusAccepted {
		t.Fatal(reply, err)
	}
	reply.Body.Close()
	o.wait(model.Succeeded, 1)

	told := <-asked
	eventually(t, "the spans of the run and its metrics", func() bool {
		stub.mu.Lock()
		defer stub.mu.Unlock()
		return stub.spans["work"] != "" && stub.calls["user"] && stub.exemplars["procaas_run_seconds"] != ""
	})
	wantExemplars(t, o.server, trace)
	stub.mu.Lock()
	defer stub.mu.Unlock()
	for name, parent := range map[string]string{
		"work/tell": "work", "work/tell/user": "work/tell", "work/tell/user attempt": "work/tell/user",
	} {
		if have := stub.spans[stub.spans[name]]; have != parent {
			t.Errorf("want %s within %s, have it within %q", name, parent, have)
		}
	}
	if stub.spans["work"] != sender || len(stub.traces) != 1 || !stub.traces[trace] {
		t.Errorf("want the run within the sender's span, have it within %s, in %v", stub.spans["work"], stub.traces)
	}
	parts := strings.Split(told.Get("Traceparent"), "-")
	if len(parts) != 4 || parts[1] != trace || stub.spans[parts[2]] != "work/tell/user attempt" ||
		told.Get("Tracestate") != "congo=t61rcWkgMzE,rojo=00f067" {
		t.Errorf("want the service told of the attempt's span, have %q, %q", told.Get("Traceparent"), told.Get("Tracestate"))
	}
	if stub.resource["service.name"] != "procaas" || stub.resource["service.instance.id"] != "here" ||
		stub.resource["deployment.environment.name"] != "test" {
		t.Errorf("want this node described, have %v", stub.resource)
	}
	if stub.header.Get("X-Tenant") != "taxi" {
		t.Errorf("want the headers that the environment names, have %v", stub.header)
	}
	for _, want := range []string{`"http.request.method"`, service.URL + "/v1/push"} {
		if !strings.Contains(stub.all.String(), want) {
			t.Errorf("want %s told, have %s", want, stub.all.String())
		}
	}
	for name, have := range stub.exemplars {
		if have != trace {
			t.Errorf("want the exemplars of %s to name the trace, have %q", name, have)
		}
	}
	if strings.Contains(stub.all.String(), "canary") {
		t.Errorf("want no secret in traces, have %s", stub.all.String())
	}
}

// exemplarsOf are the histograms whose durations name the trace that has them.
var exemplarsOf = []string{"procaas_handler_seconds", "procaas_stage_seconds", "procaas_run_seconds"}

// wantExemplars reads the metrics as OpenMetrics, where durations name their trace, and as the older text, which has no place for that.
func wantExemplars(t *testing.T, server, trace string) {
	t.Helper()
	for _, format := range []string{"application/openmetrics-text;version=1.0.0", "text/plain;version=0.0.4"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", format)
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		kind, _, _ := strings.Cut(format, ";")
		if err != nil || !strings.HasPrefix(reply.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: have %s, %v", format, reply.Header.Get("Content-Type"), err)
		}
		for _, name := range exemplarsOf {
			exemplar := regexp.MustCompile(`(?m)^` + name + `_bucket\{.*\} \d+ # \{trace_id="` + trace + `"\} `)
			if have := exemplar.Match(text); have != (kind == "application/openmetrics-text") {
				t.Errorf("%s: exemplars of %s: have %v in\n%s", format, name, have, text)
			}
		}
	}
}

// eventually waits until something has come true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	patience.Until(t, what, done)
}
