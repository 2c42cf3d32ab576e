package transport

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/budget"
)

// This file controls how requests arrive and leave. A body gets the time that its size needs. Every
// request gets a status. A sender whose body is refused unread can read why.

const (
	// maxDrained bounds what is read of a refused body, in bytes. Many clients read no answer
	// before they have written everything, and a closed connection is a broken pipe to them.
	maxDrained = 8 << 20
)

// attended serves requests with a handler in this way. It paces the body unless the handler does.
func attended(next http.Handler, log *slog.Logger, paced bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{StatusWriter: StatusWriter{ResponseWriter: w}}
		if paced && r.ContentLength != 0 {
			v.body = arriving{ReadCloser: r.Body, out: w, start: time.Now()}
			r.Body = &v.body
		}
		next.ServeHTTP(v, r)
		if !v.Wrote {
			log.Error("a request ended without an answer", "method", r.Method, "url_path", r.URL.Path)
			w.Header().Set("Connection", "close")
			p := problem.New(problem.Internal, "the request met a defect of the program, which gave no answer; it is unknown whether the call "+
				"took effect")
			rest.WriteAs(w, p.Status, rest.MediaProblem, p)
		}
		if v.body.ReadCloser != nil && r.Header.Get("Expect") == "" {
			v.body.drain(r.ContentLength)
		}
	})
}

// A visit is one request with its answer.
type visit struct {
	StatusWriter
	body arriving // the zero value when there is none
}

// Hijack implements [http.Hijacker].
func (v *visit) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	v.Wrote = true
	return http.NewResponseController(v.ResponseWriter).Hijack()
}

// An arriving body extends the deadlines of its connection as it comes.
type arriving struct {
	io.ReadCloser
	out   http.ResponseWriter
	start time.Time
	got   int64 // bytes
	told  int64 // bytes that the deadline includes
	ended bool  // the body has ended
}

// Read implements [io.Reader].
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.got += int64(n)
	if a.got-a.told >= rest.BodyRate {
		a.told = a.got
		// A test recorder has no deadlines.
		_ = http.NewResponseController(a.out).SetReadDeadline(a.start.Add(rest.ReadTime + time.Duration(a.got)*time.Second/rest.BodyRate))
	}
	if err != nil && !a.ended {
		a.ended = true
		a.mayAnswer()
	}
	return n, err
}

// mayAnswer gives the answer its full time, however long the body took.
func (a *arriving) mayAnswer() {
	if time.Since(a.start) > time.Second {
		_ = http.NewResponseController(a.out).SetWriteDeadline(time.Now().Add(rest.WriteTime))
	}
}

// drain reads the rest of a body after its answer, within bounds. The server itself handles a small
// rest.
func (a *arriving) drain(length int64) {
	const small = 256 << 10
	if a.ended || length-a.got < small || length-a.got > maxDrained {
		return
	}
	a.mayAnswer()
	if http.NewResponseController(a.out).Flush() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, a) // after an error the connection is cut off
}

// Within bounds the work for each request by a time. 0 is no bound. A request holds memory of the node until it ends.
func Within(m *budget.Memory, most func(*http.Request) time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		work, r := rest.Begin(r, most(r), m)
		defer work.End()
		next.ServeHTTP(w, r)
	})
}
