package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// This file is what answers have in common that last: those that wait for news, and
// streams of events (server-sent events, as the HTML standard describes them).

const (
	// MediaStream is the media type of server-sent events.
	MediaStream = "text/event-stream"

	// streamBeat is how often a stream without news shows that it lives: proxies cut
	// connections that are silent for a minute or so, and a caller that hears nothing for
	// some beats knows that its peer is gone.
	streamBeat = 15 * time.Second

	// longestStream bounds one connection. Callers come back by themselves, to another
	// node perhaps, so that nodes that have just started get their share of them.
	longestStream = time.Hour

	// WriteTime is what one part of an answer that lasts may take to be written.
	WriteTime = 10 * time.Second
)

// WantsStream reports whether a caller asks for a stream of events.
func WantsStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), MediaStream)
}

// Lasts reports whether a request may wait for news, and has deadlines of its own.
func Lasts(r *http.Request) bool {
	path := r.URL.Path
	return strings.HasPrefix(path, "/v1/runs/") && strings.HasSuffix(path, "/progress") ||
		strings.HasPrefix(path, "/v1/clusters/") && strings.HasSuffix(path, "/assignment") ||
		strings.HasPrefix(path, "/v1/shard-maps/") && strings.HasSuffix(path, "/watch") && WantsStream(r)
}

// Streams are the answers that last.
type Streams struct {
	Ended   <-chan struct{} // closed when the server has ended
	Closing <-chan struct{} // closed when it is about to; calls in flight may keep a node for a while

	// MayGoOn looks whether the caller may still make the call of an operation. It may also
	// while that cannot be found out: a store that is away keeps nobody from what is in memory.
	MayGoOn func(r *http.Request, operation string) bool
}

// UntilEnd bounds how long an answer lasts: by a time, and by the end of the server.
func (s *Streams) UntilEnd(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	go func() {
		select {
		case <-s.Ended:
			cancel()
		case <-s.Closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// LetLast lets an answer take longer than the server gives others.
func LetLast(w http.ResponseWriter, most time.Duration) error {
	out, until := http.NewResponseController(w), time.Now().Add(most)
	for _, set := range []func(time.Time) error{out.SetReadDeadline, out.SetWriteDeadline} {
		if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("let an answer last: %w", err)
		}
	}
	return nil
}

// An Event is one message of a stream. Its id is what a caller names in Last-Event-ID to go
// on behind it; an event without data is no message, only a sign of life.
type Event struct {
	ID, Name string
	Data     []byte // without line breaks, as JSON is
}

// encode writes an event as the standard has it.
func (e Event) encode() []byte {
	if e.Data == nil {
		return []byte(": nothing new\n\n")
	}
	return fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Name, e.Data)
}

// Stream sends events until the caller leaves, the server ends or the stream has lasted long
// enough. next waits for an event until its context ends, which it answers with none. What
// fails ends the stream: the caller comes back, and meets the error as an answer if it is
// still there. A token that was withdrawn meanwhile ends it at the next sign of life: it has to
// allow the operation.
func (s *Streams) Stream(c *Call, operation string, next func(ctx context.Context) (Event, error)) error {
	ctx, cancel := s.UntilEnd(c.Context(), longestStream)
	defer cancel()
	c.Answered()
	w := c.W
	h := w.Header()
	h.Set("Content-Type", MediaStream)
	h.Set("X-Accel-Buffering", "no")
	part := []byte("retry: 1000\n\n")
	for {
		if err := LetLast(w, streamBeat+WriteTime); err != nil {
			return err
		}
		if _, err := w.Write(part); err != nil {
			return nil // the caller has left
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return nil
		}
		if c.R.Method == http.MethodHead {
			return nil // it asks for the header only
		}
		bounded, cancelBeat := context.WithTimeout(ctx, streamBeat)
		e, err := next(bounded)
		cancelBeat()
		if err != nil || ctx.Err() != nil {
			return nil
		}
		if e.Data == nil && !s.MayGoOn(c.R, operation) {
			return nil
		}
		part = e.encode()
	}
}
