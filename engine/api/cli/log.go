package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
)

// NewLogger returns a logger to standard error. From now on, writing to it never waits: see [Streams.Detach].
func NewLogger(s Streams, format, level string) (*slog.Logger, error) {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		return nil, Usagef("--log-level %q: want debug, info, warn or error", level)
	}
	var handler func(io.Writer) slog.Handler
	switch {
	case format == "json", format == "auto" && !Terminal(s.Err):
		handler = func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: min}) }
	case format == "text", format == "auto":
		plain := !Colorful(s.Err)
		handler = func(w io.Writer) slog.Handler {
			return tint.NewTextHandler(w, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: plain})
		}
	default:
		return nil, Usagef("--log-format %q: want auto, text or json", format)
	}
	s.Detach(func(lost uint64) []byte {
		var line bytes.Buffer
		record := slog.NewRecord(time.Now(), slog.LevelWarn, fmt.Sprintf("%d lines dropped, since nothing read the log", lost), 0)
		_ = handler(&line).Handle(context.Background(), record) // a buffer takes everything
		return line.Bytes()
	})
	return slog.New(handler(s.Err)), nil
}
