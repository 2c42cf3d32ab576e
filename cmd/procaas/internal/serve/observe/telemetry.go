// Package observe exports what a node does: traces, metrics and logs to a collector, and metrics from its store.
package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"procaas/engine/api/cli"
	"procaas/engine/tracing"
)

// exportGrace is how long a stopping node tries to export the last of what it has.
const exportGrace = 5 * time.Second

// Telemetry exports traces, metrics and logs to a collector, as configured by the standard OTEL_ variables. The zero Telemetry
// exports nothing.
type Telemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	logs    *sdklog.LoggerProvider
}

// The signals of OpenTelemetry, as they are written in its variables.
const (
	traces  = "TRACES"
	metrics = "METRICS"
	logs    = "LOGS"
)

// wants reports whether the environment enables a signal. It must name a collector for it, or have OTEL_…_EXPORTER=otlp. An
// endpoint for all signals enables traces only: metrics and logs are read in other ways by most, and would be sent twice.
func wants(env func(string) string, signal string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := "OTEL_" + signal + "_EXPORTER"
	switch name := env(exporter); name {
	case "none":
		return false, nil
	case "otlp": // on this machine, unless an endpoint is set
	case "":
		all := signal == traces && env("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
		if !all && env("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") == "" {
			return false, nil
		}
	default:
		return false, cli.Usagef("%s=%q: want otlp or none", exporter, name)
	}
	// As in the specification, the variable for the signal takes precedence. A node that is configured for gRPC must not start, since
	// it would lose everything.
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := env(name); protocol {
		case "":
			continue
		case "http/protobuf", "http/json":
			return true, nil
		default:
			return false, cli.Usagef("%s=%q: %s are sent over HTTP only; want http/protobuf", name, protocol, strings.ToLower(signal))
		}
	}
	return true, nil
}

// OpenTelemetry prepares the export, and returns the log of the node, which is also sent if the environment asks for it. It sends
// nothing yet. If the collector is unreachable, only what would be sent is lost.
func OpenTelemetry(ctx context.Context, node string, log *slog.Logger, from prometheus.Gatherer) (*Telemetry, *slog.Logger, error) {
	t := &Telemetry{}
	wanted := map[string]bool{}
	for _, signal := range []string{traces, metrics, logs} {
		yes, err := wants(os.Getenv, signal)
		if err != nil {
			return t, log, err
		}
		if yes {
			wanted[signal] = true
		}
	}
	if len(wanted) == 0 {
		return t, log, nil
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "procaas"),
			attribute.String("service.version", cli.Version()),
			attribute.String("service.instance.id", node),
		),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
	if err != nil {
		return t, log, fmt.Errorf("describe this node to the collector: %w", err)
	}
	for signal, open := range map[string]func() error{
		// Without tracing.SpanIDs, spans of a run on several nodes would not be connected.
		traces: func() error {
			exporter, err := otlptracehttp.New(ctx)
			if err == nil {
				t.traces = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about),
					sdktrace.WithIDGenerator(tracing.SpanIDs{}))
			}
			return err
		},
		metrics: func() error {
			exporter, err := otlpmetrichttp.New(ctx)
			if err == nil {
				t.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithResource(about), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter,
					sdkmetric.WithProducer(exemplars{bridge.NewMetricProducer(bridge.WithGatherer(from))}))))
			}
			return err
		},
		logs: func() error {
			exporter, err := otlploghttp.New(ctx)
			if err == nil {
				t.logs = sdklog.NewLoggerProvider(sdklog.WithResource(about), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
			}
			return err
		},
	} {
		if !wanted[signal] {
			continue
		}
		if err := open(); err != nil {
			t.Close(log)
			return &Telemetry{}, log, fmt.Errorf("prepare the export of %s: %w", strings.ToLower(signal), err)
		}
	}
	// The default would write to standard error, without the format of the log. What is said here must not be sent, too.
	local := log
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		local.Warn("traces, metrics or logs cannot be sent to the collector", "error", err)
	}))
	if t.logs != nil {
		sent := otelslog.NewHandler("procaas", otelslog.WithLoggerProvider(t.logs))
		log = slog.New(slog.NewMultiHandler(log.Handler(), asLoud{sent, log.Handler()}))
	}
	return t, log, nil
}

// asLoud handles what another handler has a level for.
type asLoud struct {
	slog.Handler
	as slog.Handler
}

// Enabled implements [slog.Handler].
func (h asLoud) Enabled(ctx context.Context, level slog.Level) bool { return h.as.Enabled(ctx, level) }

// WithAttrs implements [slog.Handler].
func (h asLoud) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asLoud{h.Handler.WithAttrs(attrs), h.as}
}

// WithGroup implements [slog.Handler].
func (h asLoud) WithGroup(name string) slog.Handler { return asLoud{h.Handler.WithGroup(name), h.as} }

// Tracer returns the tracer, or nil if traces are off.
func (t *Telemetry) Tracer() trace.Tracer {
	if t.traces == nil {
		return nil
	}
	return t.traces.Tracer("procaas")
}

// Close exports what is left.
func (t *Telemetry) Close(log *slog.Logger) {
	// The node's own context has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), exportGrace)
	defer cancel()
	var err error
	if t.traces != nil {
		err = errors.Join(err, t.traces.Shutdown(ctx))
	}
	if t.metrics != nil {
		err = errors.Join(err, t.metrics.Shutdown(ctx))
	}
	if t.logs != nil {
		err = errors.Join(err, t.logs.Shutdown(ctx))
	}
	if err != nil {
		log.Warn("the last traces, metrics or logs cannot be sent", "error", err)
	}
}
