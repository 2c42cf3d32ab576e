package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"procaas/engine/api/rest"
	"procaas/engine/budget"
)

// openTab is the Cache-Control of the request by which an open tab keeps its page fresh. Another
// tab may have asked for the same page within that time.
const openTab = "max-age=1"

const openTabAge = time.Second

// tabs answers open tabs of the console. Tabs of one page and one caller share an answer, so that
// many of them cost little more than one. All other requests get an answer of their own.
type tabs struct {
	console http.Handler

	most   int            // bytes of all answers together
	memory *budget.Holder // counts them

	mu    sync.Mutex // guards pages and bytes
	pages map[string]*sharedPage
	bytes int // of their answers
}

// mostPages bounds the answers that tabs share, in bytes. A page that does not fit is made for each
// tab.
const mostPages = 16 << 20

// newTabs makes the answers of tabs for a console.
func newTabs(console http.Handler, m *budget.Memory) *tabs {
	t := &tabs{console: console, most: mostPages, memory: m.Hold(budget.Pages), pages: map[string]*sharedPage{}}
	if one, ok := m.One(); ok {
		t.most = min(t.most, one/4)
	}
	return t
}

// A sharedPage is the answer to all tabs of one page.
type sharedPage struct {
	mu sync.Mutex // guards the following, and is held while the page is made
	answer
	made time.Time // zero if it must be made anew

	bytes int       // that count for it; guarded by the lock of tabs, like the next
	used  time.Time // when a tab last asked for it
}

// ServeHTTP implements [http.Handler].
func (t *tabs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.Header.Get("Cache-Control") != openTab {
		t.console.ServeHTTP(w, r)
		return
	}
	g := rest.Granted(r)
	key := fmt.Sprintf("%s %q %q %s %q", r.URL.RequestURI(), r.Header.Get("Accept-Encoding"), g.Name, g.Role, g.Paths)
	p := t.page(key)
	a := p.of(t.console, r)
	t.keep(key, p, pageSize+len(key)+a.body.Len())
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may have left
}

// pageSize is the size of a page besides its key and its text, in bytes.
const pageSize = 2 << 10

// page returns the page with a key.
func (t *tabs) page(key string) *sharedPage {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[key]
	if p == nil {
		p = &sharedPage{bytes: pageSize + len(key)}
		t.pages[key] = p
		t.bytes += p.bytes
	}
	p.used = time.Now()
	return p
}

// keep counts a page that was made, and forgets those that no tab has any more. Beyond the bound, it
// forgets those first that were asked for longest ago.
func (t *tabs) keep(key string, p *sharedPage, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pages[key] != p {
		return // forgotten meanwhile
	}
	t.bytes += bytes - p.bytes
	p.bytes = bytes
	for key, old := range t.pages {
		if time.Since(old.used) > time.Minute {
			t.forget(key)
		}
	}
	for t.bytes > t.most {
		t.forget(t.oldest())
	}
	t.memory.Set(t.bytes)
}

// oldest returns the key of the page that was asked for longest ago. The caller holds the lock.
func (t *tabs) oldest() (oldest string) {
	var since time.Time
	for key, p := range t.pages {
		if since.IsZero() || p.used.Before(since) {
			oldest, since = key, p.used
		}
	}
	return oldest
}

// forget drops a page. The caller holds the lock.
func (t *tabs) forget(key string) {
	t.bytes -= t.pages[key].bytes
	delete(t.pages, key)
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
