package route

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// errSilent is the end of an attempt whose worker was silent for too long.
var errSilent = errors.New("the worker was silent for too long")

// A watch ends an attempt in which nothing happens for a while.
type watch struct {
	silence time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// watchFor returns the context of an attempt. Its watch must be ended, or be over a reply.
func watchFor(ctx context.Context, silence time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{silence: silence, cancel: cancel}
	w.timer = time.AfterFunc(silence, func() { cancel(errSilent) })
	return ctx, w
}

// progress notes that something happens.
func (w *watch) progress() { w.timer.Reset(w.silence) }

// pause allows silence until the next progress.
func (w *watch) pause() { w.timer.Stop() }

// end ends the watch and the attempt.
func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// over watches the body of a reply, and ends with it. A connection that has another protocol now may
// be silent. It ends with the request.
func (w *watch) over(reply *http.Response) {
	w.pause()
	if reply.StatusCode != http.StatusSwitchingProtocols {
		reply.Body = &watchedBody{reply.Body, w}
	}
}

// A watchedBody is the body of a reply. Its caller may be slow between the reads.
type watchedBody struct {
	io.ReadCloser
	watch *watch
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	b.watch.progress()
	defer b.watch.pause()
	return b.ReadCloser.Read(p)
}

// Close implements [io.Closer].
func (b *watchedBody) Close() error {
	defer b.watch.end()
	return b.ReadCloser.Close()
}

// A steadyWriter is the answer to a caller, who must not stop reading it.
type steadyWriter struct {
	http.ResponseWriter
	out     *http.ResponseController
	silence time.Duration
}

// Write implements [io.Writer].
func (w *steadyWriter) Write(p []byte) (int, error) {
	_ = w.out.SetWriteDeadline(time.Now().Add(w.silence))
	return w.ResponseWriter.Write(p)
}

// WriteHeader implements [http.ResponseWriter]. The server itself tells a caller who waits for that
// to send its body, and the proxy's own waits are none of its business.
func (w *steadyWriter) WriteHeader(status int) {
	if status != http.StatusContinue {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets an [http.ResponseController] reach the connection.
func (w *steadyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A steadyBody is the body of a caller, who must not be silent within it.
type steadyBody struct {
	io.ReadCloser
	out     *http.ResponseController
	silence time.Duration
}

// Read implements [io.Reader].
func (b *steadyBody) Read(p []byte) (int, error) {
	// A test recorder has no deadlines.
	_ = b.out.SetReadDeadline(time.Now().Add(b.silence))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.out.SetReadDeadline(time.Time{}) // the server watches the connection from now on
	}
	return n, err
}
