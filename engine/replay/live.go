package replay

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"time"

	"procaas/engine/clock"
)

// This file makes the calls of a run in the shadow that change nothing.

// shadowHeader marks such calls.
const shadowHeader = "X-Procaas-Shadow"

// longestLive bounds a call in real time.
const longestLive = 30 * time.Second

// safe reports whether a call may be made for real: it only reads, or the author of its service allows it. One with
// secrets or credentials is not: they are the server's.
func (w *wire) safe(r *http.Request) bool {
	s := w.attempt.Step.Service
	if !w.trial.real || w.call.secret || s != nil && (s.Auth != nil || s.TLS != nil) {
		return false
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead || s != nil && s.Shadow
}

// changed reports whether the run itself has sent another request.
func (w *wire) changed() bool {
	was := w.trial.was[w.call.key()]
	differs := was != nil && was.to() != w.call.to()
	if was != nil {
		walk("", was.Sent, w.call.Sent, func(string, any, any) { differs = true })
	}
	return differs
}

// ask makes the call, and lets the time pass that it took. Nothing may take it for one of the run: it has a key of its own.
func (w *wire) ask(r *http.Request) (*http.Response, error) {
	w.call.Live = true
	limit := longestLive
	if t := w.attempt.Timeout; t > 0 {
		limit = min(limit, t)
	}
	ctx, cancel := context.WithTimeout(w.trial.ctx, limit)
	defer cancel()
	sent := r.WithContext(ctx)
	sent.Header = maps.Clone(r.Header)
	sent.Header.Set(shadowHeader, "true")
	if k := sent.Header.Get("Idempotency-Key"); k != "" {
		sent.Header.Set("Idempotency-Key", "shadow-"+k)
	}
	began := time.Now()
	reply, err := w.trial.def.Client.Transport.RoundTrip(sent)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
		reply.Body.Close()
	}
	if late := clock.Sleep(r.Context(), time.Since(began)); late != nil {
		return nil, late
	}
	if err != nil {
		return nil, err
	}
	reply.Body, reply.Request = io.NopCloser(bytes.NewReader(body)), r
	return reply, nil
}
