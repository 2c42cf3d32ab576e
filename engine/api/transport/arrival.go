package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
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
			v.body = arriving{ReadCloser: r.Body, out: http.NewResponseController(w), start: time.Now()}
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
	out   *http.ResponseController
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
		_ = a.out.SetReadDeadline(a.start.Add(rest.ReadTime + time.Duration(a.got)*time.Second/rest.BodyRate))
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
		_ = a.out.SetWriteDeadline(time.Now().Add(rest.WriteTime))
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
	if a.out.Flush() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, a) // after an error the connection is cut off
}

// Within bounds the work for each request by a time. 0 is no bound.
func Within(most func(*http.Request) time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bound := most(r)
		if bound == 0 {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := newWorkTime(r.Context(), bound)
		defer cancel()
		r = r.WithContext(ctx)
		if r.ContentLength != 0 && r.Body != nil {
			r.Body = ctx.outside(r.Body)
		}
		next.ServeHTTP(w, r)
	})
}

// A workTime is the context of a request. It ends when the work takes too long. The time in which
// the body comes does not count.
type workTime struct {
	context.Context // of the connection

	work  context.Context // a child of it
	timer *time.Timer
	most  time.Duration
}

// newWorkTime bounds the work for a request. The returned function ends it.
func newWorkTime(ctx context.Context, most time.Duration) (*workTime, context.CancelFunc) {
	work, cancel := context.WithCancelCause(ctx)
	w := &workTime{Context: ctx, work: work, most: most}
	w.timer = time.AfterFunc(most, func() { cancel(context.DeadlineExceeded) })
	return w, func() {
		w.timer.Stop()
		cancel(context.Canceled)
	}
}

// Done implements [context.Context].
func (w *workTime) Done() <-chan struct{} { return w.work.Done() }

// Err implements [context.Context].
func (w *workTime) Err() error {
	if err := w.work.Err(); err == nil || !errors.Is(context.Cause(w.work), context.DeadlineExceeded) {
		return err
	}
	return context.DeadlineExceeded
}

// AfterFunc lets contexts below this one end with it, as [context.AfterFunc] has it.
func (w *workTime) AfterFunc(f func()) func() bool { return context.AfterFunc(w.work, f) }

// outside returns a body whose reading does not count as work.
func (w *workTime) outside(body io.ReadCloser) io.ReadCloser { return &uncounted{body, w} }

// uncounted is a body that stops the time while it comes.
type uncounted struct {
	io.ReadCloser
	time *workTime
}

// Read implements [io.Reader].
func (u *uncounted) Read(p []byte) (int, error) {
	u.time.timer.Stop()
	n, err := u.ReadCloser.Read(p)
	u.time.timer.Reset(u.time.most)
	return n, err
}
