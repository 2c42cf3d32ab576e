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

// This file is how requests arrive and leave, whoever answers them: a body gets the time that
// its size needs, no request ends without a status, and a sender whose body is refused unread
// gets to read why.

const (
	// maxDrained bounds what is read of a body that was refused, in bytes. Many clients read
	// no answer before they have written everything: a connection that is closed
	// meanwhile is a broken pipe to them.
	maxDrained = 8 << 20
)

// attended serves requests by a handler, as said above. The body of a request is paced
// unless that is left to the handler.
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

// Hijack implements [http.Hijacker]: who takes the connection over answers by itself.
func (v *visit) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	v.Wrote = true
	return http.NewResponseController(v.ResponseWriter).Hijack()
}

// An arriving body moves the deadlines of its connection as it comes.
type arriving struct {
	io.ReadCloser
	out   *http.ResponseController
	start time.Time
	got   int64 // bytes
	told  int64 // how many of them the deadline knows of
	ended bool  // nothing comes any more
}

// Read implements [io.Reader].
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if a.got += int64(n); a.got-a.told >= rest.BodyRate {
		a.told = a.got
		// What is no connection has no deadlines to move.
		_ = a.out.SetReadDeadline(a.start.Add(rest.ReadTime + time.Duration(a.got)*time.Second/rest.BodyRate))
	}
	if err != nil && !a.ended {
		a.ended = true
		a.mayAnswer()
	}
	return n, err
}

// mayAnswer lets the answer take as long after a body that took its time as after any other.
func (a *arriving) mayAnswer() {
	if time.Since(a.start) > time.Second {
		_ = a.out.SetWriteDeadline(time.Now().Add(rest.WriteTime))
	}
}

// drain reads what is left of a body behind its answer, within bounds. Of a small rest the
// server takes care itself.
func (a *arriving) drain(length int64) {
	const small = 256 << 10
	if a.ended || length-a.got < small || length-a.got > maxDrained {
		return
	}
	a.mayAnswer()
	if a.out.Flush() != nil {
		return
	}
	_, _ = io.Copy(io.Discard, a) // who cannot be drained is cut off
}

// A workTime is the context of a request. It ends when the work for the request takes too long;
// the time in which the body comes is not counted.
type workTime struct {
	context.Context // of the connection

	work  context.Context // a child of it
	timer *time.Timer
	most  time.Duration
}

// newWorkTime bounds the work for a request by most. The function ends it.
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

// outside returns a body whose reading is not counted as work.
func (w *workTime) outside(body io.ReadCloser) io.ReadCloser { return &uncounted{body, w} }

// uncounted is a body that stops the time until it has come.
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
