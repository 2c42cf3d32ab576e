// Package observe shows what a node does: traces, and metrics that are read from its store.
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

	"procaas/cmd/procaas/internal/cli"
	"procaas/engine/tracing"
)

// exportGrace is how long a node that stops tries to hand its last spans out.
const exportGrace = 5 * time.Second

// Traces sends spans to a collector, as the standard OTEL_ variables of the
// environment say. The zero Traces sends none.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// wantsTraces reports whether the environment asks for traces. They are off unless
// it names a collector, or says OTEL_TRACES_EXPORTER=otlp for the one of this
// machine.
func wantsTraces(env func(string) string) (bool, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp": // to the collector of this machine, unless an endpoint is named
	case "":
		if env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return false, nil
		}
	default:
		return false, cli.Usagef("OTEL_TRACES_EXPORTER=%q: want otlp or none", exporter)
	}
	// The variable for traces counts before the one for everything, as the specification of
	// OpenTelemetry has it. A node that asks for gRPC must not start and lose all spans.
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

// OpenTraces prepares what the environment asks for. Nothing is sent before
// the first span has ended; a collector that is away loses spans and no more.
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
	// The default writes to standard error, past the log and its format.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces cannot be sent", "error", err)
	}))
	// Without tracing.SpanIDs the spans of a run that goes from node to node fall apart.
	return &Traces{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(tracing.SpanIDs{}),
	)}, nil
}

// Tracer makes spans; nil when nobody wants them.
func (t *Traces) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("procaas")
}

// Close hands out what is left.
func (t *Traces) Close(log *slog.Logger) {
	if t.provider == nil {
		return
	}
	// Not the node's context: that has ended, which is why the node stops.
	ctx, cancel := context.WithTimeout(context.Background(), exportGrace)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("the last traces cannot be sent", "error", err)
	}
}
