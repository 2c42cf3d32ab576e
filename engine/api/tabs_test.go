package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"procaas/engine/api"
	"procaas/engine/api/ui"
	"procaas/engine/budget"
	"procaas/engine/credentials"
	"procaas/engine/records"
)

// A countedNode counts how often the console reads the state of the nodes.
type countedNode struct {
	ui.Node
	reads atomic.Int64
}

func (n *countedNode) Nodes(ctx context.Context) ([]records.NodeView, error) {
	n.reads.Add(1)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return n.Node.Nodes(ctx)
}

// Whoever asks for many pages does not fill the memory of the node.
func TestPagesOfTabsAreBounded(t *testing.T) {
	t.Parallel()
	m := budget.New(1 << 20)
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), Memory: m})
	for i := range 100 {
		r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/console/docs?n=", i), nil)
		r.Header.Set("Cache-Control", "max-age=1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.Len() == 0 {
			t.Fatalf("want the page, have %d", w.Code)
		}
		if n := m.Usage().Used[budget.Pages]; n > 32<<10 {
			t.Fatalf("want at most 32 KiB of pages in a node of 1 MiB, have %d bytes after %d pages", n, i+1)
		}
	}
}

// Open tabs share one answer, so that twenty of them cost as much as one.
func TestTabsShareOneRead(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	ports := portsOf(f)
	node := &countedNode{Node: ports.Console.Node}
	ports.Console.Node = node
	const admin = "correct-horse-battery-staple"
	f.known["of-eve"] = credentials.Grant{Name: "eve", Role: credentials.RoleViewer}
	f.known["of-ops"] = credentials.Grant{Name: "ops", Role: credentials.RoleViewer}
	h := api.New(api.Options{Engine: ports, Token: admin})
	askFor := func(ctx context.Context, path, age, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.Header.Set("Cache-Control", age)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	ask := func(path, age, token string) *httptest.ResponseRecorder { return askFor(t.Context(), path, age, token) }
	const live = "max-age=1"
	// Time decides only when a page is made anew, so a slow machine may need several tries.
	shared := func() bool {
		before := node.reads.Load()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if w := ask("/", live, admin); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Overview") {
					t.Errorf("want the overview, have %d and\n%s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		return node.reads.Load()-before <= 1
	}
	for try := 0; !shared(); try++ {
		if try == 100 {
			t.Fatal("want one read of the nodes for 20 tabs")
		}
	}

	// Whoever opens or reloads the page sees what is true now.
	before := node.reads.Load()
	for range 3 {
		ask("/", "max-age=0", admin)
	}
	if n := node.reads.Load() - before; n != 3 {
		t.Errorf("want 3 reads for 3 reloads, have %d", n)
	}

	// A tab that is closed meanwhile does not spoil the page of the others.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	askFor(gone, "/?other", live, admin)
	if page := ask("/?other", live, admin).Body.String(); strings.Contains(page, "cannot be read") {
		t.Errorf("want the page of a tab that has left not to fail, have\n%s", page)
	}

	// Callers with other rights never see the page of another one.
	for token, name := range map[string]string{"of-eve": "eve", "of-ops": "ops"} {
		for range 2 {
			if page := ask("/", live, token).Body.String(); !strings.Contains(page, "<span>"+name+"</span>") {
				t.Errorf("want the page of %s, have\n%s", name, page)
			}
		}
	}

	// A failure is not shared.
	f.down = true
	if w := ask("/console/audit", live, "of-ops"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("want 503 without the store, have %d", w.Code)
	}
	f.down = false
	if w := ask("/console/audit", live, "of-ops"); w.Code != http.StatusOK {
		t.Errorf("want 200 once the store is back, have %d", w.Code)
	}
}
