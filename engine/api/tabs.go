package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"procaas/engine/api/rest"
)

// openTab is the Cache-Control of the request by which an open tab keeps its page fresh. Another
// tab may have asked for the same page within that time.
const openTab = "max-age=1"

const openTabAge = time.Second

// tabs answers open tabs of the console. Tabs of one page and one caller share an answer, so that
// many of them cost little more than one. All other requests get an answer of their own.
type tabs struct {
	console http.Handler

	mu    sync.Mutex // guards pages
	pages map[string]*sharedPage
}

// A sharedPage is the answer to all tabs of one page.
type sharedPage struct {
	mu sync.Mutex // guards the following, and is held while the page is made
	answer
	made time.Time // zero if it must be made anew
}

// ServeHTTP implements [http.Handler].
func (t *tabs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Cache-Control") != openTab {
		t.console.ServeHTTP(w, r)
		return
	}
	g := rest.Granted(r)
	a := t.page(fmt.Sprintf("%s %q %q %s %q", r.URL.RequestURI(), r.Header.Get("Accept-Encoding"), g.Name, g.Role, g.Paths)).of(t.console, r)
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may have left
}

// page returns the page with a key, and forgets pages that no tab has any more.
func (t *tabs) page(key string) *sharedPage {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[key]
	if p != nil {
		return p
	}
	maps.DeleteFunc(t.pages, func(_ string, p *sharedPage) bool {
		if !p.mu.TryLock() {
			return false // it is being made
		}
		defer p.mu.Unlock()
		return time.Since(p.made) > time.Minute
	})
	p = &sharedPage{}
	t.pages[key] = p
	return p
}

// of returns the answer. It makes one if there is none that is fresh enough. A caller that leaves
// does not spoil it for the others. A failure is not shared.
func (p *sharedPage) of(console http.Handler, r *http.Request) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.made) < openTabAge {
		return p.answer
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), rest.RequestTime)
	defer cancel()
	p.answer = answer{header: http.Header{}, status: http.StatusOK}
	console.ServeHTTP(&p.answer, r.WithContext(ctx))
	if p.status == http.StatusOK {
		p.made = time.Now()
	}
	return p.answer
}
