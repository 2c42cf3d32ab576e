package node

import (
	"context"
	"log/slog"
)

// A lazyHandler adds attributes to log records. Most runs and calls log nothing, and need not pay
// for their attributes.
type lazyHandler struct {
	slog.Handler
	of interface{ attrs() []slog.Attr } // of the run or the call
}

func (h *lazyHandler) named() slog.Handler { return h.Handler.WithAttrs(h.of.attrs()) }

// Handle implements [slog.Handler].
func (h *lazyHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.named().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *lazyHandler) WithAttrs(attrs []slog.Attr) slog.Handler { return h.named().WithAttrs(attrs) }

// WithGroup implements [slog.Handler].
func (h *lazyHandler) WithGroup(name string) slog.Handler { return h.named().WithGroup(name) }
