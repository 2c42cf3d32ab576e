package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/budget"
)

// memoryWait is how long a request waits for memory. Others usually end much sooner.
const memoryWait = 2 * time.Second

// copiesOfBody is how often a body is in memory beside its decoded form: as it came, and encoded again for the store.
const copiesOfBody = 3

// TakeMemory takes memory for a request, which has it until its work ends. Nothing is taken before its body is read, and
// only admitted callers' bodies are. The error is for the caller.
func TakeMemory(r *http.Request, bytes int) error {
	h, _ := r.Context().Value(memoryKey{}).(*budget.Holder)
	if h == nil || h.Try(bytes) {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), memoryWait)
	defer cancel()
	err := h.Take(ctx, bytes)
	var large *budget.TooLargeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return problem.New(problem.BodyTooLarge, "the body is too large for this node: decoded, %s", large).With("Connection", "close")
	}
	return problem.New(problem.Overloaded, "requests and runs under way hold all the memory of this node; nothing of this request was "+
		"accepted, so send it again later").With("Retry-After", "1").With("Connection", "close")
}

// Counted returns the body of a request. It takes memory for each byte that it reads.
func Counted(r *http.Request) io.ReadCloser { return &counted{r.Body, r} }

type counted struct {
	io.ReadCloser
	r *http.Request
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if n > 0 {
		if over := TakeMemory(c.r, n); over != nil {
			return 0, over
		}
	}
	return n, err
}
