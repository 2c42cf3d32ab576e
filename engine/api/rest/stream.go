package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// This file has the common part of long answers: waiting for news, and streams of server-sent
// events, as in the HTML standard.

const (
	// MediaStream is the media type of server-sent events.
	MediaStream = "text/event-stream"

	// streamBeat is how often an idle stream sends a keep-alive. Proxies close silent connections
	// after about a minute, and a caller that hears nothing for some beats knows that its peer is
	// gone.
	streamBeat = 15 * time.Second

	// longestStream bounds one connection. Callers reconnect, perhaps to another node, so that new
	// nodes get their share.
	longestStream = time.Hour

	// WriteTime is how long writing one part of a long answer may take.
	WriteTime = 10 * time.Second
)

// WantsStream reports whether a caller asks for a stream of events.
func WantsStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), MediaStream)
}

// Always is for operations that always last.
func Always(*http.Request) bool { return true }

// Streams has what long answers share.
type Streams struct {
	Ended   <-chan struct{} // closed when the server has ended
	Closing <-chan struct{} // closed when it is about to end; calls in flight may keep a node for a while

	// MayGoOn reports whether the caller may still make a call. If the store is unreachable,
	// it returns true, because the answer comes from memory.
	MayGoOn func(r *http.Request, n Need) bool
}

// UntilEnd bounds an answer by a time and by the end of the server.
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

// LetLast lets an answer take longer than the server's usual limit.
func LetLast(w http.ResponseWriter, most time.Duration) error {
	out, until := http.NewResponseController(w), time.Now().Add(most)
	for _, set := range []func(time.Time) error{out.SetReadDeadline, out.SetWriteDeadline} {
		if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("let an answer last: %w", err)
		}
	}
	return nil
}

// An Event is one message of a stream. A caller sends its id in Last-Event-ID to continue after it.
// An event without data is a keep-alive.
type Event struct {
	ID, Name string
	Data     []byte // without line breaks, like JSON
}

// encode encodes an event.
func (e Event) encode() []byte {
	if e.Data == nil {
		return []byte(": nothing new\n\n")
	}
	return fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Name, e.Data)
}

// Stream sends events until the caller leaves, the server ends or the stream has lasted long
// enough. next waits for an event until its context ends, then returns none. An error ends the
// stream. The caller reconnects, and gets the error as an answer if it persists. A revoked token
// ends the stream at the next keep-alive.
func (s *Streams) Stream(c *Call, next func(ctx context.Context) (Event, error)) error {
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
		if e.Data == nil && !s.MayGoOn(c.R, c.Need) {
			return nil
		}
		part = e.encode()
	}
}
