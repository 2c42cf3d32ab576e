package route

import (
	"bytes"
	"io"
	"net/http"
	"sync"

	"procaas/engine/budget"
)

// A replay is the body of a request that may be sent several times.
type replay struct {
	whole []byte // of a small body
	none  bool   // there is no body

	mu   sync.Mutex // guards what follows
	rest io.Reader  // of a larger body, from its start; otherwise nil
	read bool       // a part was sent
}

// bodyOf reads a body that may be kept. One of unknown length is a stream, and its sender may wait for
// an answer before it goes on.
func (p *Proxy) bodyOf(r *http.Request, kept *budget.Holder) (*replay, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return &replay{none: true}, nil
	case r.ContentLength < 0 || r.ContentLength > p.o.Replay || !kept.Try(int(r.ContentLength)):
		return &replay{rest: r.Body}, nil
	}
	whole := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, whole); err != nil {
		return nil, &bodyError{err}
	}
	return &replay{whole: whole}, nil
}

// A bodyError says that the client has not sent its body.
type bodyError struct{ error }

func (e *bodyError) Unwrap() error { return e.error }

// spent reports whether the body cannot be sent again.
func (b *replay) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.read
}

// attempt sets the body of a request for one attempt. One that is not kept is sent only after the worker has
// asked for it, or has not answered for long.
func (b *replay) attempt(out *http.Request, watch *watch) *sending {
	s := &sending{of: b, watch: watch}
	switch {
	case b.none:
		out.Body = http.NoBody
	case b.rest == nil:
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.whole)), nil }
		out.Body, _ = out.GetBody()
		out.Header.Del("Expect") // it has come
	default:
		out.Body = s
		// The transport reads it only after the worker's 100, or after a wait.
		out.Header.Set("Expect", "100-continue")
	}
	return s
}

// A sending is a body that is not kept, in one attempt.
type sending struct {
	of     *replay
	watch  *watch
	sealed bool // guarded by the replay's mutex
}

// Read implements [io.Reader].
func (s *sending) Read(p []byte) (int, error) {
	if !s.begin() {
		return 0, io.ErrClosedPipe // the attempt is over, and the next one needs the body
	}
	s.watch.pause() // for the caller's silence, which has a bound of its own
	defer s.watch.progress()
	return s.of.rest.Read(p)
}

// begin reports whether the body is sent in this attempt. Then no other attempt follows.
func (s *sending) begin() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.read = s.of.read || !s.sealed
	return s.of.read
}

// Close implements [io.Closer]. The server closes the body.
func (s *sending) Close() error { return nil }

// seal ends an attempt. If no part of the body was sent, it stays whole for the next one.
func (s *sending) seal() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.sealed = true
}
