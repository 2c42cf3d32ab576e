package route

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// A replay is the body of a request that may be sent several times.
type replay struct {
	whole []byte // of a small body
	none  bool   // there is no body

	mu   sync.Mutex // guards what follows
	rest io.Reader  // of a larger body, from its start; otherwise nil
	read bool       // a part was sent
}

// bodyOf reads as much of a body as may be kept.
func (p *Proxy) bodyOf(r *http.Request) (*replay, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return &replay{none: true}, nil
	}
	if r.ContentLength > p.o.Replay {
		return &replay{rest: r.Body}, nil
	}
	// One extra byte detects a body that is too large, because the length may be unknown.
	start, err := io.ReadAll(io.LimitReader(r.Body, p.o.Replay+1))
	if err != nil {
		return nil, &bodyError{err}
	}
	if int64(len(start)) > p.o.Replay {
		return &replay{rest: io.MultiReader(bytes.NewReader(start), r.Body)}, nil
	}
	return &replay{whole: start}, nil
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

// attempt sets the body of a request for one attempt. A large one is sent only after the worker has
// asked for it, or has not answered for long.
func (b *replay) attempt(out *http.Request) *sending {
	s := &sending{of: b}
	switch {
	case b.none:
		out.Body = http.NoBody
	case b.rest == nil:
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.whole)), nil }
		out.Body, _ = out.GetBody()
		out.ContentLength, out.TransferEncoding = int64(len(b.whole)), nil
	default:
		out.Body = s
		// The transport reads it only after the worker's 100, or after a long wait: see
		// ExpectContinueTimeout of [NewTransport].
		out.Header.Set("Expect", "100-continue")
	}
	return s
}

// A sending is a large body in one attempt.
type sending struct {
	of     *replay
	sealed bool // guarded by the replay's mutex
}

// Read implements [io.Reader].
func (s *sending) Read(p []byte) (int, error) {
	if !s.begin() {
		return 0, io.ErrClosedPipe // the attempt is over, and the next one needs the body
	}
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
