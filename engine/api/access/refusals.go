package access

import (
	"context"
	"net/http"
	"sync"
	"time"

	"procaas/engine/store"
)

// refusals remembers which refused calls were audited, so that repeated calls do not fill the
// audit. The zero value is ready to use.
type refusals struct {
	mu    sync.Mutex // guards the rest
	began time.Time
	told  map[[2]string]bool // by token and call
	count map[string]int     // per token
}

// These bound the refusals that a node audits in an hour.
const (
	refusalWindow    = time.Hour
	mostRefusals     = 100
	mostRefusalsEach = 10 // of one token
	refusalTime      = time.Second
	longestCall      = 200 // bytes of a method and a path
)

// first reports whether to audit a refusal.
func (f *refusals) first(token, call string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); f.told == nil || now.Sub(f.began) >= refusalWindow {
		f.began, f.told, f.count = now, map[[2]string]bool{}, map[string]int{}
	}
	key := [2]string{token, call}
	if f.told[key] || len(f.told) >= mostRefusals || f.count[token] >= mostRefusalsEach {
		return false
	}
	f.told[key] = true
	f.count[token]++
	return true
}

// noteRefusal audits that the bearer of a token tried a call without permission.
func (d *Checker) noteRefusal(r *http.Request, token, detail string) {
	call := r.Method + " " + r.URL.EscapedPath()
	call = call[:min(len(call), longestCall)]
	if !d.refusals.first(token, call) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), refusalTime)
	defer cancel()
	if err := d.access.AuditRefusal(ctx, store.Actor{Name: token}, call, detail); err != nil {
		d.log.Warn("a refusal is not in the audit", "token", token, "call", call, "detail", detail, "error", err)
	}
}
