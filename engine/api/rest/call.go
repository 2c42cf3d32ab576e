// Package rest reads, answers and describes calls of the API. The input of a call is a struct whose
// tags say where each value comes from, what it may be, and what it means. [Typed] reads requests
// by the tags, and the description uses the same ones.
package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/wire"
	"procaas/engine/store"
)

// These are the media types of requests and answers.
const (
	MediaJSON    = "application/json"
	MediaProblem = "application/problem+json"
)

// RequestTime bounds the work for one request after its body has arrived. It is shorter than the
// server's write timeout, so that a store that hangs results in a reply, not in a closed
// connection.
const RequestTime = 8 * time.Second

// A Call is one request with its answer.
type Call struct {
	W       http.ResponseWriter
	R       *http.Request
	MaxBody int64 // of the request, in bytes
	Need    Need  // of the caller

	status   int // of the answer; 0 means that of the operation's first reply
	answered bool
}

// Context is that of the request.
func (c *Call) Context() context.Context { return c.R.Context() }

// Status sets the status of the answer, where it is not that of the first reply.
func (c *Call) Status(code int) { c.status = code }

// Answered says that the answer was already sent.
func (c *Call) Answered() { c.answered = true }

// ETag sets the revision of the answer.
func (c *Call) ETag(revision int64) { c.W.Header().Set("ETag", wire.ETag(revision)) }

// Revision parses the preconditions of a change: the revision to replace, 0 for none, -1 for any.
func Revision(match, none string) (int64, error) {
	switch {
	case match == "" && none == "":
		return -1, nil
	case match == "" && none == "*":
		return 0, nil
	case match == "":
		return 0, problem.Parameter([]problem.Fault{{Location: "header/if-none-match", Message: "want *, which changes only a setting that " +
			"was never changed"}})
	case match == "*":
		return -1, nil
	}
	digits := strings.TrimSuffix(strings.TrimPrefix(match, `"`), `"`)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || match != wire.ETag(n) {
		return 0, problem.Parameter([]problem.Fault{{
			Location: "header/if-match",
			Message:  `want one revision such as "3", the revision of the setting in quotes`,
		}})
	}
	return n, nil
}

// Actor returns the author of a change.
func (c *Call) Actor(reason string) store.Actor {
	return store.Actor{Name: Granted(c.R).Name, Reason: reason}
}

// MayRead refuses a caller whose grant may not read a pipeline or a type of tasks.
func (c *Call) MayRead(name string) error {
	g := Granted(c.R)
	if !g.Bound() || name != "" && g.Reads(name) {
		return nil
	}
	needed := "shows the data of all pipelines: name one of them"
	if name != "" {
		needed = "needs one that holds for " + name
	}
	p := problem.New(problem.Forbidden, "the token %s holds for %s; the call %s", g.Name, strings.Join(g.Paths, ", "), needed)
	p.Token = g.Name
	return p
}

// Bound reports whether the caller's grant is restricted to paths.
func (c *Call) Bound() bool { return len(Granted(c.R).Paths) > 0 }

// MayAt refuses a caller whose grant covers none of the paths. Only an unrestricted grant covers
// the empty path.
func (c *Call) MayAt(paths ...string) error {
	g := Granted(c.R)
	if slices.ContainsFunc(paths, g.Covers) {
		return nil
	}
	slices.Sort(paths)
	paths = slices.DeleteFunc(slices.Compact(paths), func(p string) bool { return p == "" })
	needed := "names neither a pipeline nor a handler below these"
	if len(paths) > 0 {
		needed = "needs one that holds for " + strings.Join(paths, " or ")
	}
	p := problem.New(problem.Forbidden, "the token %s holds for %s; the call %s", g.Name, strings.Join(g.Paths, ", "), needed)
	p.Token = g.Name
	return p
}

// Spend takes events or tasks from the quota of the caller's token, or refuses them.
func (c *Call) Spend(items int) error {
	g := Granted(c.R)
	wait := g.Spend(items)
	if wait <= 0 {
		return nil
	}
	here := ""
	if n := g.Sharers(); n > 1 {
		here = fmt.Sprintf(" used its part on this one of %d nodes", n)
	}
	p := problem.New(problem.QuotaExceeded, "the token %s may submit %s, and has%s; nothing of this request was accepted, "+
		"so send it again later",
		g.Name, g.Quota, here)
	p.Token = g.Name
	return p.With("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// Listed makes a page of a whole list, or passes its error on.
func Listed[T any](items []T, err error) (wire.Page[T], error) {
	return wire.PageOf(items, ""), err
}

// Reply answers with a value. It always returns nil, for the caller to return.
func (c *Call) Reply(status int, v any) error {
	WriteAs(c.W, status, MediaJSON, v)
	return nil
}

// An Appender encodes itself, faster than [encoding/json] and with the same bytes.
type Appender interface {
	AppendJSON(b []byte) []byte
}

// A reply is an encoded body.
type reply struct {
	body []byte
	json *json.Encoder // to the end of the body
}

// Write implements [io.Writer].
func (r *reply) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}

// replies are reused. One that has become larger than keptReply is not.
var replies = sync.Pool{New: func() any {
	r := &reply{}
	r.json = json.NewEncoder(r)
	r.json.SetEscapeHTML(false)
	return r
}}

const keptReply = 64 << 10 // bytes

// WriteAs writes a reply. It ignores write errors, because the client has gone. It encodes the
// value before it sends the status, so that an encoding error becomes an error reply.
func WriteAs(w http.ResponseWriter, status int, contentType string, v any) {
	r := replies.Get().(*reply)
	r.body = r.body[:0]
	if a, ok := v.(Appender); ok {
		r.body = append(a.AppendJSON(r.body), '\n')
	} else if err := r.json.Encode(v); err != nil {
		panic(fmt.Errorf("encode a reply: %w", err))
	}
	// The length marks the end, even before the rest of the request is drained.
	values := []string{contentType, strconv.Itoa(len(r.body))}
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = values[:1:1], values[1:]
	w.WriteHeader(status)
	_, _ = w.Write(r.body)
	if cap(r.body) <= keptReply {
		replies.Put(r)
	}
}
