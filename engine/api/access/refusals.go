package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"procaas/engine/api/problem"
	"procaas/engine/api/rest"
	"procaas/engine/store"
)

// notes bounds what a node writes down about calls, so that nobody can fill the log or the audit by
// repeating them. The zero value is ready to use.
type notes struct {
	mu       sync.Mutex // guards the rest
	began    time.Time
	told     map[[2]string]bool // refusals by token and call
	count    map[string]int     // refusals per token
	used     map[[3]string]bool // uses by token, operation and path
	lines    int                // in the log
	unlogged int                // calls for which there was no line
}

// These bound what a node writes down in an hour.
const (
	noteWindow       = time.Hour
	mostRefusals     = 100 // in the audit
	mostRefusalsEach = 10  // in the audit, of one token
	mostLines        = 5000
	mostUses         = 20000
	refusalTime      = time.Second
	longestCall      = 200 // bytes of a method and a path
)

// window begins a new hour if the last one is over. It returns for how many calls of the last one
// there was no line in the log. The caller holds the lock.
func (f *notes) window() (unlogged int) {
	now := time.Now()
	if f.told != nil && now.Sub(f.began) < noteWindow {
		return 0
	}
	unlogged = f.unlogged
	f.began, f.lines, f.unlogged = now, 0, 0
	f.told, f.count, f.used = map[[2]string]bool{}, map[string]int{}, map[[3]string]bool{}
	return unlogged
}

// line reports whether a call gets a line in the log, and for how many earlier ones there was none.
func (f *notes) line() (ok bool, unlogged int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlogged = f.window()
	if f.lines >= mostLines {
		f.unlogged++
		return false, unlogged
	}
	f.lines++
	return true, unlogged
}

// first reports whether to audit a refusal. last says that it is the last one of its token for this
// hour, whatever follows.
func (f *notes) first(token, call string) (ok, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window()
	key := [2]string{token, call}
	if f.told[key] || len(f.told) >= mostRefusals || f.count[token] > mostRefusalsEach {
		return false, false
	}
	f.told[key] = true
	f.count[token]++
	return true, f.count[token] > mostRefusalsEach || len(f.told) == mostRefusals
}

// use reports whether this is the first such call of a token in this hour.
func (f *notes) use(token, operation, path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window()
	key := [3]string{token, operation, path}
	if f.used[key] {
		return false
	}
	if len(f.used) >= mostUses {
		f.unlogged++
		return false
	}
	f.used[key] = true
	return true
}

// ofAccess reports whether a problem refuses a caller, and not only its request.
func ofAccess(p *problem.Problem) bool {
	switch p.Code {
	case problem.Unauthorized, problem.Forbidden, problem.TooManyFailures, problem.QuotaExceeded, problem.UnknownHost, problem.CrossOrigin:
		return true
	}
	return p.Token != ""
}

// noteRefusal logs that a caller was refused. It also audits the refusal if the caller has a token.
func (d *Checker) noteRefusal(r *http.Request, p *problem.Problem) {
	if !ofAccess(p) {
		return
	}
	path := r.URL.EscapedPath()
	path = path[:min(len(path), longestCall)]
	line, unlogged := d.notes.line()
	if unlogged > 0 {
		d.log.Warn("calls of the last hour are not in the log one by one", "calls", unlogged)
	}
	if line {
		d.log.Warn("call refused", "token", p.Token, "from", addressOf(r), "method", r.Method, "url_path", path, "code", p.Code, "detail", p.Detail)
	}
	if p.Token == "" {
		return
	}
	call, detail := r.Method+" "+path, p.Detail
	call = call[:min(len(call), longestCall)]
	ok, last := d.notes.first(p.Token, call)
	if !ok {
		return
	}
	if last {
		detail += fmt.Sprintf("; for the rest of an hour from %s, only the log of this node has more refusals", d.notes.start().UTC().Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), refusalTime)
	defer cancel()
	if err := d.access.AuditRefusal(ctx, store.Actor{Name: p.Token}, call, detail); err != nil {
		d.log.Warn("a refusal is not in the audit", "token", p.Token, "call", call, "detail", detail, "error", err)
	}
}

// NoteRefusal notes that a page refused a caller, who has a grant.
func (d *Checker) NoteRefusal(r *http.Request, text string) {
	p := problem.New(problem.Forbidden, "%s", text)
	p.Token = rest.Granted(r).Name
	d.noteRefusal(r, p)
}

// start returns when the current hour began.
func (f *notes) start() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}

// NoteUse logs the first use of a token for an operation and a path in each hour. At debug, it logs
// each use.
func (d *Checker) NoteUse(r *http.Request, operation string) {
	g := rest.Granted(r)
	if g.Name == "" || g.Name == anonymous {
		return
	}
	path := r.URL.EscapedPath()
	path = path[:min(len(path), longestCall)]
	level := slog.LevelDebug
	if d.notes.use(g.Name, operation, path) {
		level = slog.LevelInfo
	}
	if !d.log.Enabled(r.Context(), level) {
		return
	}
	d.log.Log(r.Context(), level, "token used", "token", g.Name, "role", g.Role, "operation", operation, "from", addressOf(r),
		"method", r.Method, "url_path", path)
}
