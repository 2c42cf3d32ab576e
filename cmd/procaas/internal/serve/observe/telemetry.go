// Package observe exports what a node does: traces, and metrics from its store.
package observe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"procaas/engine/api/cli"
	"procaas/engine/tracing"
)

// exportGrace is how long a stopping node tries to export its last spans.
const exportGrace = 5 * time.Second

// Traces exports spans to a collector, as configured by the standard OTEL_ variables. The zero Traces exports
// none.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// wantsTraces reports whether the environment enables traces. It must name a collector, or have
// OTEL_TRACES_EXPORTER=otlp for one on this machine.
func wantsTraces(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp": // on this machine, unless an endpoint is set
	case "":
		if env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return false, nil
		}
	default:
		return false, cli.Usagef("OTEL_TRACES_EXPORTER=%q: want otlp or none", exporter)
	}
	// As in the specification, the variable for traces takes precedence. A node that is configured for gRPC
	// must not start, since it would lose all spans.
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch protocol := env(name); protocol {
		case "":
			continue
		case "http/protobuf", "http/json":
			return true, nil
		default:
			return false, cli.Usagef("%s=%q: traces are sent over HTTP only; want http/protobuf", name, protocol)
		}
	}
	return true, nil
}

// OpenTraces prepares the export. It sends nothing before the first span has ended. If the collector is
// unreachable, only spans are lost.
func OpenTraces(ctx context.Context, node string, log *slog.Logger) (*Traces, error) {
	wanted, err := wantsTraces(os.Getenv)
	if !wanted {
		return &Traces{}, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("prepare the export of traces: %w", err)
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
		return nil, fmt.Errorf("describe this node to the collector: %w", err)
	}
	// The default would write to standard error, without the format of the log.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces cannot be sent", "error", err)
	}))
	// Without tracing.SpanIDs, spans of a run on several nodes would not be connected.
	return &Traces{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(tracing.SpanIDs{}),
	)}, nil
}

// Tracer returns the tracer, or nil if traces are off.
func (t *Traces) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("procaas")
}

// Close exports remaining spans.
func (t *Traces) Close(log *slog.Logger) {
	if t.provider == nil {
		return
	}
	// The node's own context has ended by now.
	ctx, cancel := context.WithTimeout(context.Background(), exportGrace)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("the last traces cannot be sent", "error", err)
	}
}
