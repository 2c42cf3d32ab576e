package node

import (
	"context"
	"log/slog"
)

// A lazyHandler adds attributes to log records. Most runs and calls log nothing, and need not pay
// for their attributes.
type lazyHandler struct {
	slog.Handler
	names func() []slog.Attr
}

// lazyLog returns a log that adds attributes when it writes a record.
func lazyLog(l *slog.Logger, names func() []slog.Attr) *slog.Logger {
	return slog.New(&lazyHandler{l.Handler(), names})
}

func (h *lazyHandler) named() slog.Handler { return h.Handler.WithAttrs(h.names()) }

// Handle implements [slog.Handler].
func (h *lazyHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.named().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *lazyHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.named().WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (h *lazyHandler) WithGroup(name string) slog.Handler { return h.named().WithGroup(name) }
