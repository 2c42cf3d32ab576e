package procaas

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A Problem is an error that the server returned. Code is stable: compare it, not the text.
type Problem struct {
	ProblemDetails

	// RetryAfter is how long the server asks to wait. 0 means that it does not say.
	RetryAfter time.Duration
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Code == "" {
		return p.Title
	}
	return fmt.Sprintf("%s (%s): %s", p.Title, p.Code, p.Detail)
}

// Temporary reports whether the same call may succeed later.
func (p *Problem) Temporary() bool {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// problemOf reads a refusal. One that is not from procaas, such as a proxy's, has no code.
func problemOf(reply *http.Response) *Problem {
	p := &Problem{}
	data, _ := io.ReadAll(io.LimitReader(reply.Body, 1<<20))
	if json.Unmarshal(data, &p.ProblemDetails) != nil || p.Code == "" {
		p.ProblemDetails = ProblemDetails{Title: reply.Status}
	}
	p.Status = reply.StatusCode
	if s, err := strconv.Atoi(reply.Header.Get("Retry-After")); err == nil {
		p.RetryAfter = time.Duration(s) * time.Second
	}
	return p
}

// A Duration is a time span in a message, such as 90s.
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// jittered returns up to a quarter more, so that clients do not retry together.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/4+1) }
