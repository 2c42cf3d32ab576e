package observe

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"
)

func TestNothingIsSentUnlessTheEnvironmentAsks(t *testing.T) {
	t.Parallel()
	type env = map[string]string
	for _, c := range []struct {
		signal string
		env    env
		want   bool
		err    string
	}{
		{traces, nil, false, ""},
		{traces, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true, ""},
		{traces, env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/x"}, true, ""},
		{traces, env{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{traces, env{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, ""},
		{traces, env{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, ""},
		{traces, env{"OTEL_TRACES_EXPORTER": "zipkin"}, false, `OTEL_TRACES_EXPORTER="zipkin": want otlp or none`},
		{traces, env{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, "traces are sent over HTTP only; want http/protobuf"},
		{metrics, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, ""}, // Prometheus reads them
		{metrics, env{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/x"}, true, ""},
		{metrics, env{"OTEL_METRICS_EXPORTER": "otlp"}, true, ""},
		{metrics, env{"OTEL_METRICS_EXPORTER": "prometheus"}, false, `OTEL_METRICS_EXPORTER="prometheus": want otlp or none`},
		{logs, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, false, ""}, // they are on standard error
		{logs, env{"OTEL_LOGS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc"}, false, "logs are sent over HTTP only"},
		{logs, env{"OTEL_LOGS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf"}, true, ""},
	} {
		have, err := wants(func(name string) string { return c.env[name] }, c.signal)
		if have != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s, %v: want %v and error %q, have %v, %v", c.signal, c.env, c.want, c.err, have, err)
		}
	}
}

// What describes a node to a collector keeps no node from starting that has none.
func TestBrokenDescriptionMattersOnlyToACollector(t *testing.T) { // not parallel: it sets the environment
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "broken")
	for _, sent := range []bool{false, true} {
		if sent {
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
		}
		_, _, err := OpenTelemetry(t.Context(), "here", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if (err != nil) != sent {
			t.Errorf("sent %v: have %v", sent, err)
		}
	}
}

// A line of the log is written and sent, if it has the level. Lines about the export itself are only written.
func TestLogIsSentToTheCollector(t *testing.T) { // not parallel: it sets the environment
	var mu sync.Mutex
	var sent []string
	away := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		data, err := io.ReadAll(r.Body)
		var request collector.ExportLogsServiceRequest
		if err != nil || proto.Unmarshal(data, &request) != nil || r.URL.Path != "/v1/logs" {
			t.Errorf("%s: want lines of the log", r.URL.Path)
		}
		if away {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, line := range request.ResourceLogs[0].ScopeLogs[0].LogRecords {
			text := line.SeverityText + " " + line.Body.GetStringValue()
			for _, a := range line.Attributes {
				text += " " + a.Key + "=" + a.Value.GetStringValue()
			}
			sent = append(sent, text)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", server.URL+"/v1/logs")
	var written bytes.Buffer
	open := func() (*Telemetry, *slog.Logger) {
		local := slog.New(slog.NewTextHandler(&written, nil))
		exports, log, err := OpenTelemetry(t.Context(), "here", local, prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		return exports, log
	}
	exports, log := open()
	log.Debug("quiet")
	log.With("run", "r-1").Info("loud", "path", "a/b/c")
	exports.Close(log)
	if have := strings.Join(sent, "; "); have != "INFO loud run=r-1 path=a/b/c" {
		t.Errorf("want the loud line sent, have %q", have)
	}
	if !strings.Contains(written.String(), "loud") || strings.Contains(written.String(), "quiet") {
		t.Errorf("want the loud line written, have %q", written.String())
	}
	away = true
	exports, log = open()
	log.Info("lost")
	exports.Close(log)
	if !strings.Contains(written.String(), "cannot be sent") {
		t.Errorf("want it said that lines are lost, have %q", written.String())
	}
}
