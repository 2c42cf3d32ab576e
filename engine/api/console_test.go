package api_test

import (
	"bytes"
	"compress/gzip"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"procaas/engine/api"
	"procaas/engine/api/rest"
	"procaas/engine/api/wire"
	"procaas/engine/credentials"
	"procaas/engine/guard"
	"procaas/engine/model"
)

const getOrder = "new-order-created/fetch-order/get-order"

// pages are all that the console shows of the fake engine.
var pages = []string{
	"/", "/console/pipelines/new-order-created", "/console/handlers/" + getOrder, "/console/runs", "/console/runs?status=failed&since=1h",
	"/console/runs/run-1", "/console/runs/run-1/why/get-order",
	"/console/runs/run-1/compare?with=run-1", "/console/keys/taxi-order/k", "/console/incidents", "/console/queue",
	"/console/inbox", "/console/clusters", "/console/shards", "/console/audit", "/console/costs", "/console/versions", "/console/submit",
	"/console/submit?type=new-order-created", "/console/playground", "/console/sign-in",
	"/console/runs/nobody", "/console/pipelines/new-order-creatd",
}

// The page of costs tells what each of a group cost, and what cannot be asked for.
func TestPageOfCosts(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), Version: "v1"})
	for path, want := range map[string][]string{
		"/console/costs?by=handler&days=1": {`aria-current="true">by handler`, "2026-01-31", getOrder, "7200", "52m20s", "3 KiB", "1 MiB", "1.5s"},
		"/console/costs?by=color":          {"Costs are by pipeline, by owner or by handler, not by color."},
		"/console/costs?days=91":           {"The store keeps costs of 1 to 90 days, not of 91."},
	} {
		page := strings.ReplaceAll(get(h, path).Body.String(), "<wbr>", "")
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Errorf("%s: want %s, have\n%s", path, w, page)
			}
		}
	}
}

// What comes from events is text, and a page loads nothing from elsewhere.
func TestPagesAreSafe(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f), Version: "v1"})
	post(h, `{"type": "new-order-created", "id": "e-1", "key": "<script>alert(1)</script>"}`)
	f.end("run-1", model.Failed)
	outside := regexp.MustCompile(`(src|href|action)="(https?:)?//`)
	for _, path := range pages {
		w := get(h, path)
		page := w.Body.String()
		if !strings.Contains(page, "<!doctype html>") || w.Code >= 500 {
			t.Errorf("%s: have %d and\n%s", path, w.Code, page)
		}
		for _, never := range []string{"<script>", "<b>team", "ZgotmplZ", " style=", " onclick=", "%!"} {
			if strings.Contains(page, never) {
				t.Errorf("%s: want no %q on the page, have\n%s", path, never, page)
			}
		}
		if found := outside.FindString(page); found != "" {
			t.Errorf("%s: the page asks another host: %s", path, found)
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: have policy %s", path, policy)
		}
	}
}

func TestOverviewTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f), Version: "v1"})
	post(h, `{"type": "new-order-created", "id": "e-1", "key": "k"}`)
	f.end("run-1", model.Failed)
	page := get(h, "/").Body.String()
	for _, want := range []string{getOrder, "87.5 %", "run-1", "attempt 3: 503", "ready", "switched off", "orders", "down"} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q on the page, have\n%s", want, page)
		}
	}
	f.down = true
	if page := get(h, "/").Body.String(); !strings.Contains(page, "not ready") || !strings.Contains(page, "cannot be read") {
		t.Errorf("with the store away, want a page that says so, have\n%s", page)
	}
	if w := get(h, "/console/runs"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "cannot be read") {
		t.Errorf("with the store away, want a page that says so and tries again, have %d\n%s", w.Code, w.Body)
	}
}

func TestRunPageTellsItsStory(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f)})
	post(h, `{"type": "new-order-created", "id": "e-1", "key": "k"}`)
	f.end("run-1", model.Failed)
	page := get(h, "/console/runs/run-1").Body.String()
	for _, want := range []string{
		"attempt 1: 500 &lt;b&gt;", "waits between attempts", "At most 1 at the same time", "it ran, and gave up after attempt 2: 503",
		`<b>&#34;token&#34;</b>: &#34;***&#34;`,
		`<span class="del">- null`, `<span class="ins">&#43;   &#34;price&#34;: 7`, "(no longer known: too large)",
		"which handler set &lt;b&gt;", "why/" + getOrder,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("want %q on the page, have\n%s", want, page)
		}
	}
	traced := api.New(api.Options{Engine: portsOf(f), TraceURL: "https://traces.example/{trace_id}?a=b"})
	link := regexp.MustCompile(`href="https://traces.example/[0-9a-f]{32}\?a=b"`)
	if page := get(traced, "/console/runs/run-1").Body.String(); !link.MatchString(page) {
		t.Errorf("want a link to the trace, have\n%s", page)
	}
	why := get(h, "/console/runs/run-1/why/get-order").Body.String()
	for _, want := range []string{"enabled is false: a and b", "flow.yaml:7:3", "rolled out to 25 %"} {
		if !strings.Contains(why, want) {
			t.Errorf("want %q on the page, have\n%s", want, why)
		}
	}
	if w := get(h, "/console/runs/run-1/why/nobody"); w.Code != http.StatusNotFound ||
		!strings.Contains(w.Body.String(), "has no handler nobody") {
		t.Errorf("have %d\n%s", w.Code, w.Body)
	}
}

// first paint is the page with all that it loads before it shows, as it is sent.
func TestFirstPaintIsSmall(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t)))})
	page := get(h, "/").Body.String()
	total := len(page)
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/static/[^"]+\.(?:js|css))"`).FindAllStringSubmatch(page, -1) {
		r := httptest.NewRequest(http.MethodGet, m[1], nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: have %d %v", m[1], w.Code, w.Header())
		}
		total += w.Body.Len()
	}
	if total > 100<<10 {
		t.Errorf("have %d bytes, want 100 KiB at most", total)
	}
}

// browser is a client with cookies that does not follow redirects.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do sends a request of a browser, and returns status, address of a redirect and page.
func do(t *testing.T, c *http.Client, method, address string, form url.Values) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	reply, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, reply.Header.Get("Location"), string(body)
}

func TestSignInKeepsPeopleIn(t *testing.T) {
	t.Parallel()
	at := "http://" + serve(t, api.New(api.Options{
		Engine: portsOf(newFake(taxi(t))), Token: "correct-horse-battery-staple",
		Open: []string{rest.OpenRuns},
	}))
	c := browser(t)
	if code, to, _ := do(t, c, http.MethodGet, at+"/console/audit?kind=run", nil); code != http.StatusSeeOther ||
		to != "/console/sign-in?next=%2Fconsole%2Faudit%3Fkind%3Drun" {
		t.Fatalf("without a token, want the page to sign in, have %d %s", code, to)
	}
	if code, _, page := do(t, c, http.MethodPost, at+"/console/sign-in", url.Values{"token": {"wrong"}}); code != http.StatusUnauthorized ||
		!strings.Contains(page, "no token of this server") {
		t.Errorf("with a wrong token, have %d\n%s", code, page)
	}
	for next, want := range map[string]string{
		"/console/audit": "/console/audit", "//elsewhere.example": "/", "https://elsewhere.example": "/", "": "/",
		"/\t/elsewhere.example": "/", "/\n/elsewhere.example": "/", "/%09/elsewhere.example": "/", "/\\elsewhere.example": "/",
		"/console/\t/x": "/", "/elsewhere": "/",
		"/console/audit?kind=run": "/console/audit?kind=run",
	} {
		code, to, _ := do(t, c, http.MethodPost, at+"/console/sign-in", url.Values{"token": {"correct-horse-battery-staple"}, "next": {next}})
		if code != http.StatusSeeOther || to != want {
			t.Errorf("sign in, then %q: want %s, have %d %s", next, want, code, to)
		}
	}
	code, _, page := do(t, c, http.MethodGet, at+"/console/audit", nil)
	if code != http.StatusOK || !strings.Contains(page, "Sign out") || strings.Contains(page, "battery") {
		t.Errorf("signed in, have %d\n%s", code, page)
	}
	if code, _, _ := do(t, c, http.MethodGet, at+"/admin/v1/handlers", nil); code != http.StatusUnauthorized {
		t.Errorf("the cookie is for the console alone, have %d of the API", code)
	}
	home, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	kept := c.Jar.Cookies(home) // by somebody who has looked over a shoulder
	if len(kept) != 1 || !strings.HasPrefix(kept[0].Name, "procaas_session_") || strings.Contains(kept[0].Value, "battery") {
		t.Errorf("want a session as the only cookie, and not the token, have %v", kept)
	}
	ask := func(path, authorization string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.AddCookie(kept[0])
		r.Header.Set("Authorization", authorization)
		reply, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reply.Body.Close() })
		return reply
	}
	if reply := ask("/admin/v1/handlers", "Bearer "+kept[0].Value); reply.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session is no token, have %s", reply.Status)
	}
	if code, _, _ := do(t, c, http.MethodPost, at+"/console/sign-out", nil); code != http.StatusSeeOther {
		t.Errorf("sign out: have %d", code)
	}
	if code, _, _ := do(t, c, http.MethodGet, at+"/", nil); code != http.StatusSeeOther {
		t.Errorf("signed out, want the page to sign in, have %d", code)
	}
	if reply := ask("/console/audit", ""); reply.StatusCode != http.StatusSeeOther {
		t.Errorf("want the session ended for whoever has kept the cookie, have %s", reply.Status)
	}
}

// Another site cannot make a visitor's browser switch anything.
func TestConsoleRefusesFormsOfOtherSites(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t)))})
	r := httptest.NewRequest(http.MethodPost, "/console/controls/new-order-created", strings.NewReader("do=off&confirm=yes"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("have %d %s", w.Code, w.Body)
	}
}

// A key is any text. Each has a page that the list of runs links to, as a browser reads the link, and a place in the API.
func TestAnyKeyHasAPage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := browser(t)
	dots := regexp.MustCompile(`(?i)%2e`)
	for _, key := range []string{
		".", "..", "...", "/", "//", "a//b", "../x", "x/..", "a/../b", "%", "%2e%2e", "%2F", "a?b#c", "a b", "a+b", `a\b`, "a;b&key=c", "<i>", "ключ", "{key}", ":",
	} {
		e := wire.Event{Type: "new-order-created", Source: "test", Payload: map[string]any{"order-id": key}}
		receipt, err := n.SubmitEvent(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		entity, err := n.Entity(t.Context(), "taxi-order", key)
		if err != nil || entity.Key != key || len(entity.Runs) != 1 || entity.Runs[0].ID != receipt.Run {
			t.Errorf("%q over the API: have %v, %+v", key, err, entity)
		}
		_, _, list := do(t, c, http.MethodGet, n.url+"/console/runs?key="+url.QueryEscape(key), nil)
		link := regexp.MustCompile(`<tr id="run-` + receipt.Run + `"><td><a href="([^"]*)"`).FindStringSubmatch(list)
		if link == nil {
			t.Errorf("%q has no link in\n%s", key, list)
			continue
		}
		at, err := url.Parse(html.UnescapeString(link[1]))
		if err != nil {
			t.Fatal(err)
		}
		base := &url.URL{Scheme: "http", Host: strings.TrimPrefix(n.url, "http://"), Path: "/console/runs"}
		segments := strings.Split(at.EscapedPath(), "/")
		for i, s := range segments { // a browser decodes the dots of a segment that is only dots
			if plain := dots.ReplaceAllString(s, "."); plain == "." || plain == ".." {
				segments[i] = plain
			}
		}
		at.Path, at.RawPath = strings.Join(segments, "/"), ""
		if at.Path, err = url.PathUnescape(at.Path); err != nil {
			t.Fatal(err)
		}
		at.RawPath = strings.Join(segments, "/")
		code, _, page := do(t, c, http.MethodGet, base.ResolveReference(at).String(), nil)
		if code != http.StatusOK || !strings.Contains(page, receipt.Run) {
			t.Errorf("%q: %s: have %d\n%s", key, link[1], code, page)
		}
	}
}

// TestConsoleSwitchesWithoutScripts finds the broken handler and switches it off with
// links and forms alone, on a real engine.
func TestConsoleSwitchesWithoutScripts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := browser(t)
	n.orders.Store(http.StatusBadRequest)
	receipt, err := n.SubmitEvent(t.Context(), wire.Event{
		Type: "new-order-created", ID: "e-1", Source: "test",
		Payload: map[string]any{"order-id": "o/1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.until(t, "the run has failed", func() bool {
		run, err := n.Run(t.Context(), receipt.Run)
		return err == nil && run.Status == model.Failed
	})
	page := func(path string, want ...string) string {
		t.Helper()
		code, _, body := do(t, c, http.MethodGet, n.url+path, nil)
		for _, w := range want {
			if code != http.StatusOK || !strings.Contains(body, w) {
				t.Fatalf("%s: want %q, have %d\n%s", path, w, code, body)
			}
		}
		return body
	}
	page("/", `href="/console/handlers/`+getOrder+`"`, receipt.Run)
	page("/console/handlers/"+getOrder, "service: orders", "Switch off", receipt.Run)
	failed := page("/console/runs/"+receipt.Run, "400", "Retry", "failed")
	if !regexp.MustCompile(`class="box failed"[^\n]*</span><span>critical`).MatchString(failed) {
		t.Errorf("want the box of the failed handler to say that it is critical\n%s", failed)
	}
	page("/console/keys/taxi-order/o%2F1", "searching", receipt.Run, "later events wait")
	page("/console/pipelines/new-order-created", "fetch-order", "notify")

	off := url.Values{"do": {"hold"}, "for": {"30m"}, "reason": {"orders is down"}}
	control := n.url + "/console/controls/" + getOrder
	if code, _, body := do(t, c, http.MethodPost, control, off); code != http.StatusOK || !strings.Contains(body, "Hold <code>"+getOrder) {
		t.Fatalf("want to be asked first, have %d\n%s", code, body)
	}
	if list, err := n.Controls(t.Context()); err != nil || len(list) != 0 {
		t.Fatalf("want nothing done before it is confirmed, have %v, %v", list, err)
	}
	off.Set("confirm", "yes")
	off.Set("revision", "-1")
	if code, to, body := do(t, c, http.MethodPost, control, off); code != http.StatusSeeOther || to != "/console/handlers/"+getOrder {
		t.Fatalf("have %d %s\n%s", code, to, body)
	}
	skip := url.Values{"do": {"off"}, "for": {"30m"}}
	if code, _, body := do(t, c, http.MethodPost, control, skip); code != http.StatusOK ||
		!strings.Contains(body, "no run of <b>new-order-created</b> is complete") ||
		!strings.Contains(body, `name="force" value="yes" required`) {
		t.Fatalf("to leave a critical handler out, want to be told what that means, have %d\n%s", code, body)
	}
	skip.Set("confirm", "yes")
	if code, _, body := do(t, c, http.MethodPost, control, skip); code != http.StatusConflict || !strings.Contains(body, "critical") {
		t.Fatalf("without insisting, want it to be refused, have %d\n%s", code, body)
	}
	list, err := n.Controls(t.Context())
	if err != nil || len(list) != 1 || list[0].Mode != guard.ModeHold || list[0].Reason != "orders is down" || list[0].Until == nil {
		t.Fatalf("want a hold with its reason and end, have %+v, %v", list, err)
	}
	page("/", "held", "orders is down")
	page("/console/audit", "orders is down")
	if code, _, body := do(t, c, http.MethodPost, n.url+"/console/controls/new-order-creatd", off); code != http.StatusConflict ||
		!strings.Contains(body, "new-order-created") {
		t.Errorf("an unknown path: have %d\n%s", code, body)
	}
	if code, _, _ := do(t, c, http.MethodPost, control, url.Values{"do": {"on"}}); code != http.StatusSeeOther {
		t.Errorf("lift: have %d", code)
	}

	n.orders.Store(http.StatusOK)
	retry := url.Values{"do": {"retry"}, "handler": {getOrder}}
	if code, _, body := do(t, c, http.MethodPost, n.url+"/console/runs", retry); code != http.StatusOK ||
		!strings.Contains(body, "<b>1</b> runs would resume") {
		t.Errorf("want to see which runs that would be, have %d\n%s", code, body)
	}
	if code, _, _ := do(t, c, http.MethodPost, n.url+"/console/runs/"+receipt.Run,
		url.Values{"do": {"retry"}, "reason": {"mended"}}); code != http.StatusSeeOther {
		t.Errorf("retry: have %d", code)
	}
	n.until(t, "the run succeeds", func() bool {
		run, err := n.Run(t.Context(), receipt.Run)
		return err == nil && run.Status == model.Succeeded
	})
}

// The documentation is read where one is when one needs it.
func TestDocsAreInTheConsole(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	h := api.New(api.Options{Engine: portsOf(f), Version: "v1"})
	for path, want := range map[string]string{
		"/console/docs":                 `<a href="/console/docs/tutorial">Tutorial</a>`,
		"/console/docs/authoring/state": `href="/console/docs/authoring/expressions"`,
		"/console/docs/PC0501":          "<h2>Right</h2>",
		"/console/docs?q=idempotency":   `<a href="/console/docs/concepts">Concepts</a>: `,
		"/console/docs?q=nonesuchword":  "No page contains this text.",
		"/console/docs/nope":            "There is no such page.",
	} {
		if page := get(h, path).Body.String(); !strings.Contains(page, want) {
			t.Errorf("%s: want %q, have\n%s", path, want, page)
		}
	}
	index := get(h, "/console/docs").Body.String()
	for _, m := range regexp.MustCompile(`href="(/console/docs/[^"#]+)`).FindAllStringSubmatch(index, -1) {
		if w := get(h, m[1]); w.Code != http.StatusOK {
			t.Errorf("the index leads to %s, which has status %d", m[1], w.Code)
		}
	}
}

func TestPlaygroundChecksAndKeepsNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := browser(t)
	try := func(yaml string) string {
		_, _, body := do(t, c, http.MethodPost, n.url+"/console/playground", url.Values{"yaml": {yaml}})
		return body
	}
	if body := try("pipelines: [{id: a, stages: [{id: s, handlers: [{id: h, set: {}}]}]}]"); !strings.Contains(body, "No problems found") ||
		!strings.Contains(body, "a/s/h") {
		t.Errorf("have\n%s", body)
	}
	body := try("pipelines: [{id: a, stages: [{id: s, handlers: [{id: h, sett: {}}]}]}]")
	if !strings.Contains(body, `error <a href="/console/docs/PC`) ||
		!strings.Contains(body, "line 1") {
		t.Errorf("have\n%s", body)
	}
	if code, _, _ := do(t, c, http.MethodGet, n.url+"/console/pipelines/a", nil); code != http.StatusNotFound {
		t.Errorf("have %d for a pipeline that was only tried", code)
	}
}

// A token that came to a proxy over TLS must not be sent in the clear later.
func TestTokenOfAnEncryptedPageStaysThere(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), Token: "correct-horse-battery-staple"})
	for proto, want := range map[string]bool{"": false, "http": false, "https": true, "HTTPS": true} {
		r := httptest.NewRequest(http.MethodPost, "/console/sign-in", strings.NewReader("token=correct-horse-battery-staple"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if proto != "" {
			r.Header.Set("X-Forwarded-Proto", proto)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		cookies := w.Result().Cookies()
		if len(cookies) != 1 || cookies[0].Secure != want || !cookies[0].HttpOnly {
			t.Errorf("X-Forwarded-Proto %q: want one cookie, secure %t, have %d %v", proto, want, w.Code, cookies)
		}
	}
}

// People who guess where the console is get there.
func TestConsoleIsFoundByItsName(t *testing.T) {
	t.Parallel()
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t))), Version: "v1"})
	for _, at := range []string{"/console", "/console/"} {
		if w := get(h, at); w.Code != http.StatusFound || w.Header().Get("Location") != "/" {
			t.Errorf("%s: have %d to %q", at, w.Code, w.Header().Get("Location"))
		}
	}
	if w := get(h, "/console/nothing"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "There is no such page") {
		t.Errorf("have %d: %s", w.Code, w.Body)
	}
}

// Browsers send cookies to all ports of a host. Each server has its own.
func TestSessionsBelongToOnePort(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	f.known["of-ann"] = credentials.Grant{Name: "ann", Role: credentials.RoleViewer}
	h := api.New(api.Options{Engine: portsOf(f), Token: "correct-horse-battery-staple"})
	names := map[string]bool{}
	for _, c := range []struct{ host, proto string }{{"localhost:8080", ""}, {"localhost:8081", ""}, {"procaas.example", ""}, {"procaas.example", "https"}} {
		r := httptest.NewRequest(http.MethodPost, "/console/sign-in", strings.NewReader("token=of-ann"))
		r.Host = c.host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if c.proto != "" {
			r.Header.Set("X-Forwarded-Proto", c.proto)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		for _, cookie := range w.Result().Cookies() {
			names[cookie.Name] = cookie.Secure
		}
	}
	want := map[string]bool{
		"procaas_session_8080": false, "procaas_session_8081": false, "procaas_session": false, "__Host-procaas_session": true,
	}
	if !maps.Equal(names, want) {
		t.Errorf("want cookies %v, have %v", want, names)
	}
}

// Anybody may ask for the description, so it is encoded once, and not sent again to a client that has it.
func TestDescriptionIsEncodedOnce(t *testing.T) { // alone, since it counts allocations
	h := api.New(api.Options{Engine: portsOf(newFake(taxi(t)))})
	ask := func(header, value string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/openapi.json", nil)
		if header != "" {
			r.Header.Set(header, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	plain, zipped := ask("", ""), ask("Accept-Encoding", "gzip")
	unzipped, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil || !bytes.Equal(text, plain.Body.Bytes()) || zipped.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("want the same description compressed, have %d bytes of %d, %v", len(text), plain.Body.Len(), err)
	}
	tag := plain.Header().Get("ETag")
	if w := ask("If-None-Match", `"other", `+tag); tag == "" || w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("want 304 for %s, have %d and %d bytes", tag, w.Code, w.Body.Len())
	}
	if n := testing.AllocsPerRun(20, func() { ask("", "") }); n > 200 {
		t.Errorf("want an answer from memory, have %v allocations", n)
	}
}
