package api

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
	mediaStream = "text/event-stream"

	// streamBeat is how often a stream without news shows that it lives: proxies cut
	// connections that are silent for a minute or so, and a caller that hears nothing for
	// some beats knows that its peer is gone.
	streamBeat = 15 * time.Second

	// longestStream bounds one connection. Callers come back by themselves, to another
	// node perhaps, so that nodes that have just started get their share of them.
	longestStream = time.Hour

	// writeTime is what one part of an answer that lasts may take to be written.
	writeTime = 10 * time.Second
)

// wantsStream tells whether a caller asks for a stream of events.
func wantsStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), mediaStream)
}

// lasting tells whether a request may wait for news, and has deadlines of its own.
func lasting(r *http.Request) bool {
	path := r.URL.Path
	return strings.HasPrefix(path, "/v1/clusters/") && strings.HasSuffix(path, "/assignment") ||
		strings.HasPrefix(path, shardMapsPrefix) && strings.HasSuffix(path, "/watch") && wantsStream(r)
}

// untilEnd bounds how long an answer lasts: by a time, and by the end of the server.
func (s *server) untilEnd(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	go func() {
		select {
		case <-s.console.Ended():
			cancel()
		case <-s.closing: // sooner: calls under way may keep a node for a while
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// lasts lets an answer take longer than the server gives others.
func lasts(w http.ResponseWriter, most time.Duration) error {
	out, until := http.NewResponseController(w), time.Now().Add(most)
	for _, set := range []func(time.Time) error{out.SetReadDeadline, out.SetWriteDeadline} {
		if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("let an answer last: %w", err)
		}
	}
	return nil
}

// An event is one message of a stream. Its id is what a caller names in Last-Event-ID to go
// on behind it; an event without data is no message, only a sign of life.
type event struct {
	id, name string
	data     []byte // without line breaks, as JSON is
}

// encode writes an event as the standard has it.
func (e event) encode() []byte {
	if e.data == nil {
		return []byte(": nothing new\n\n")
	}
	return fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", e.id, e.name, e.data)
}

// stream sends events until the caller leaves, the server ends or the stream has lasted long
// enough. next waits for an event until its context ends, which it answers with none. What
// fails ends the stream: the caller comes back, and meets the error as an answer if it is
// still there. The need is that of the call, by the access of which the stream began: a token
// that was withdrawn meanwhile ends it at the next sign of life.
func (s *server) stream(w http.ResponseWriter, r *http.Request, n need, next func(ctx context.Context) (event, error)) error {
	ctx, cancel := s.untilEnd(r.Context(), longestStream)
	defer cancel()
	h := w.Header()
	h.Set("Content-Type", mediaStream)
	h.Set("X-Accel-Buffering", "no")
	part := []byte("retry: 1000\n\n")
	for {
		if err := lasts(w, streamBeat+writeTime); err != nil {
			return err
		}
		if _, err := w.Write(part); err != nil {
			return nil // the caller has left
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return nil
		}
		if r.Method == http.MethodHead {
			return nil // it asks for the header only
		}
		bounded, cancelBeat := context.WithTimeout(ctx, streamBeat)
		e, err := next(bounded)
		cancelBeat()
		if err != nil || ctx.Err() != nil {
			return nil
		}
		if e.data == nil {
			if _, err := s.grantFor(r, n); err != nil && problemOf(err).Status < http.StatusInternalServerError {
				return nil // but a store that is away keeps nobody from what is in memory
			}
		}
		part = e.encode()
	}
}
