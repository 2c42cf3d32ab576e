package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"procaas/engine/api"
	"procaas/engine/api/transport"
	"procaas/engine/store"
)

// A halfPipe is a connection in memory of which either side may close its half.
type halfPipe struct {
	net.Conn          // what it reads from
	out      net.Conn // what it writes to
}

// newHalfPipe makes both ends of a connection.
func newHalfPipe() (here, there halfPipe) {
	toThere, fromHere := net.Pipe()
	toHere, fromThere := net.Pipe()
	return halfPipe{toHere, fromHere}, halfPipe{toThere, fromThere}
}

func (c halfPipe) Write(p []byte) (int, error)        { return c.out.Write(p) }
func (c halfPipe) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c halfPipe) CloseWrite() error                  { return c.out.Close() }
func (c halfPipe) RemoteAddr() net.Addr               { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }

func (c halfPipe) SetDeadline(t time.Time) error {
	_ = c.out.SetDeadline(t)
	return c.Conn.SetDeadline(t)
}

func (c halfPipe) Close() error {
	_ = c.out.Close()
	return c.Conn.Close()
}

// A doorway serves the API on connections in memory, within a bubble.
type doorway struct {
	*testing.T
	l      *piped
	server *http.Server
	served chan error
	log    bytes.Buffer
}

func newDoorway(t *testing.T, h http.Handler) *doorway {
	d := &doorway{T: t, l: &piped{conns: make(chan net.Conn), done: make(chan struct{})}, served: make(chan error, 1)}
	d.server = transport.Server(h, slog.New(slog.NewTextHandler(&d.log, nil)))
	go func() { d.served <- d.server.Serve(d.l) }()
	return d
}

func (d *doorway) close() {
	_ = d.server.Close()
	<-d.served
	time.Sleep(time.Second) // of the bubble: net/http lingers a little on connections that it closes
}

// A reply is all that a client gets to read.
type reply struct {
	status int // 0 when the connection was closed without an answer
	body   string
	took   time.Duration
}

// send sends the head of a request and what a client does after it, and reads what comes.
func (d *doorway) send(head string, then func(halfPipe)) reply {
	here, there := newHalfPipe()
	d.l.conns <- there
	sent := make(chan struct{})
	defer func() { <-sent }()
	defer here.Close()
	start := time.Now()
	go func() {
		defer close(sent)
		if _, err := io.WriteString(here, head); err == nil {
			then(here)
		}
	}()
	_ = here.SetReadDeadline(start.Add(5 * time.Minute))
	answer, err := http.ReadResponse(bufio.NewReader(here), &http.Request{Method: head[:strings.Index(head, " ")]})
	if err != nil {
		return reply{took: time.Since(start)}
	}
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return reply{status: answer.StatusCode, body: "a stream", took: time.Since(start)}
	}
	body, _ := io.ReadAll(answer.Body)
	return reply{answer.StatusCode, string(body), time.Since(start)}
}

// A door is one call of the API, or a form of the console.
type door struct {
	method, path, contentType, body string

	takes bool // a body, without which it must not succeed
}

// doors lists all of them: from the description, and from the source of the console.
func doors(t *testing.T, h http.Handler) []door {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			RequestBody *struct {
				Content map[string]struct{ Example any }
			} `json:"requestBody"`
		}
	}
	if err := json.Unmarshal(get(h, "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("{id}", "run-1", "{pipeline}", "mail", "{stage}", "send", "{handler}", "mail", "{flow}", "taxi-order",
		"{key}", "k", "{name}", "CITIES", "{map}", "mail", "{shard}", "s1", "{cluster}", "fanout", "{lever}", "freeze", "{partition}", "1",
		"{transfer}", "t_1", "{version}", "1a2b3c", "{other}", "1a2b3c", "{trigger}", "nightly")
	var all []door
	for path, methods := range doc.Paths {
		for method, o := range methods {
			r := door{method: strings.ToUpper(method), path: fill.Replace(path), contentType: "application/json", body: `{"reason": "x"}`}
			if o.RequestBody != nil {
				r.takes = true
				data, err := json.Marshal(o.RequestBody.Content["application/json"].Example)
				if err != nil {
					t.Fatal(err)
				}
				r.body = string(data)
			}
			if strings.Contains(r.path, "{") {
				t.Errorf("%s %s: this test does not know how to fill it in", method, path)
			}
			all = append(all, r)
		}
	}
	form := "do=hold&confirm=yes&token=t&yaml=x&reason=r"
	for _, path := range consoleForms(t) {
		all = append(all, door{
			method: http.MethodPost, path: path, contentType: "application/x-www-form-urlencoded", body: form,
			takes: !strings.HasSuffix(path, "sign-out"),
		})
	}
	slices.SortFunc(all, func(a, b door) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// consoleForms lists where the pages of the console send their forms.
func consoleForms(t *testing.T) []string {
	t.Helper()
	fill := strings.NewReplacer("{id}", "run-1", "{path...}", "new-order-created")
	var all []string
	source, err := os.ReadFile("ui/ui.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`"POST " \+ (?:Root \+ "([^"]+)"|(\w+)Page)`).FindAllStringSubmatch(string(source), -1) {
		if m[1] == "" {
			m[1] = map[string]string{"SignIn": "sign-in", "SignOut": "sign-out", "Submit": "submit"}[m[2]]
		}
		all = append(all, "/console/"+fill.Replace(m[1]))
	}
	if len(all) < 5 {
		t.Fatalf("have the forms %v, want all of them", all)
	}
	return all
}

// unfinished are the ways in which the body of a request does not arrive.
var unfinished = map[string]func(c halfPipe, body string){
	"slow":        func(c halfPipe, body string) { _, _ = io.WriteString(c, body[:1]) }, // and no more
	"byte a time": func(c halfPipe, body string) { _ = drip(c, strings.Split(body, ""), 2*time.Second, "") },
	"short":       func(c halfPipe, body string) { _, _ = io.WriteString(c, body[:len(body)-1]); _ = c.CloseWrite() },
	"none":        func(c halfPipe, _ string) { _ = c.CloseWrite() },
	"cancelled":   func(c halfPipe, body string) { _, _ = io.WriteString(c, body[:len(body)-1]); _ = c.Close() },
}

// everything is a server that has all that a server may have.
func everything(t *testing.T, f *fakeEngine) http.Handler {
	t.Helper()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "one"}))
	return api.New(withProducts(f, api.Options{
		Registry: metrics, Reload: f.reload, Closing: make(chan struct{}),
	}, products{tasks: new(store.TaskStore), shards: newWatched()}))
}

// TestBodyThatDoesNotArriveIsNeverASuccess walks every route with bodies that do not arrive
// as announced. Calls that take none may succeed; they must say so explicitly.
func TestBodyThatDoesNotArriveIsNeverASuccess(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	all := doors(t, everything(t, newFake(b)))
	for name, then := range unfinished {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(b)
				d := newDoorway(t, everything(t, f))
				defer d.close()
				for _, r := range all {
					head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", r.method, r.path, r.contentType,
						len(r.body))
					have := d.send(head, func(c halfPipe) { then(c, r.body) })
					switch {
					case r.takes && have.status/100 == 2, r.takes && have.status == 303:
						t.Errorf("%s %s: have %d %.100q after %s for a body that did not arrive", r.method, r.path, have.status, have.body, have.took)
					case have.status == 200 && have.body == "" && r.method != http.MethodHead:
						t.Errorf("%s %s: have 200 without a body, which nobody has said", r.method, r.path)
					}
				}
				synctest.Wait()
				if text := d.log.String(); strings.Contains(text, "without an answer") {
					t.Errorf("have calls that end without an answer:\n%s", text)
				}
				if len(f.seen) != 0 || len(f.actors) != 0 {
					t.Errorf("have events %v and changes by %v, want none", f.seen, f.actors)
				}
			})
		})
	}
}

// TestCallerThatClosesItsHalfGetsTheTruth walks every route with whole bodies, behind which the
// client closes its half: net/http cancels the request then, though the client still reads.
func TestCallerThatClosesItsHalfGetsTheTruth(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	all := doors(t, everything(t, newFake(b)))
	synctest.Test(t, func(t *testing.T) {
		f := newFake(b)
		d := newDoorway(t, everything(t, f))
		defer d.close()
		for _, r := range all {
			head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", r.method, r.path, r.contentType,
				len(r.body))
			before := len(f.seen)
			have := d.send(head, func(c halfPipe) { _, _ = io.WriteString(c, r.body); _ = c.CloseWrite() })
			if have.status == 0 || have.status == 200 && have.body == "" {
				t.Errorf("%s %s: have %d %q", r.method, r.path, have.status, have.body)
			}
			if r.path == "/v1/events" && (have.status/100 == 2) != (len(f.seen) > before) {
				t.Errorf("have %d %s, and %d events", have.status, have.body, len(f.seen)-before)
			}
		}
		synctest.Wait()
		if text := d.log.String(); strings.Contains(text, "without an answer") {
			t.Errorf("have calls that end without an answer:\n%s", text)
		}
	})
}

// TestCallerThatLeavesAStoreThatHangsGetsNoSuccess has the body whole, and the engine busy with it
// when the client closes its half, or waits.
func TestCallerThatLeavesAStoreThatHangsGetsNoSuccess(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	for name, c := range map[string]struct {
		then func(halfPipe)
		code string
	}{
		"closes its half": {func(c halfPipe) { _ = c.CloseWrite() }, "client_left"},
		"waits":           {func(halfPipe) {}, "store_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDoorway(t, api.New(withProducts(hungEngine{newFake(b)}, api.Options{})))
				defer d.close()
				body := `{"type": "new-order-created"}`
				have := d.send(fmt.Sprintf("POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					len(body), body), c.then)
				if have.status != 503 || !strings.Contains(have.body, c.code) {
					t.Errorf("have %d %s, want 503 %s", have.status, have.body, c.code)
				}
			})
		})
	}
}

// TestHonestUploadMayBeSlow sends bodies at the pace of a bad line, and others that only hold
// a connection.
func TestHonestUploadMayBeSlow(t *testing.T) {
	t.Parallel()
	b := taxi(t)
	for name, c := range map[string]struct {
		size   int // of the body
		rate   int // bytes a second
		pause  time.Duration
		status int
		within time.Duration
	}{
		"600 KB at 80 KB/s":                {600_000, 80_000, 0, 202, 10 * time.Second},
		"300 KB at 30 KB/s":                {300_000, 30_000, 0, 202, 12 * time.Second},
		"1 MB at 20 KB/s":                  {1_000_000, 20_000, 0, 202, time.Minute},
		"1 MB at 1 KB/s":                   {1_000_000, 1_000, 0, 408, 10 * time.Second},
		"a little, and then nothing":       {1_000_000, 100_000, time.Hour, 408, 15 * time.Second},
		"a small one that comes by itself": {100, 10, 0, 408, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake(b)
				d := newDoorway(t, api.New(withProducts(f, api.Options{})))
				defer d.close()
				body := `{"type": "new-order-created", "payload": "` + strings.Repeat("x", c.size) + `"}`
				head := fmt.Sprintf("POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
				have := d.send(head, func(conn halfPipe) {
					for rest := body; rest != ""; {
						n := min(c.rate/5, len(rest))
						time.Sleep(200 * time.Millisecond)
						if _, err := io.WriteString(conn, rest[:n]); err != nil {
							return
						}
						rest = rest[n:]
						time.Sleep(c.pause)
					}
				})
				if have.status != c.status || have.took > c.within {
					t.Errorf("have %d %.200s after %s, want %d within %s", have.status, have.body, have.took, c.status, c.within)
				}
				if (len(f.seen) == 1) != (c.status == 202) {
					t.Errorf("have %d and %d events", have.status, len(f.seen))
				}
			})
		})
	}
}

// TestWhoWritesBeforeItReadsGetsItsRefusal sends bodies that are refused unread, and looks for the
// answer only when all is written, as many clients do.
func TestWhoWritesBeforeItReadsGetsItsRefusal(t *testing.T) {
	t.Parallel()
	f := newFake(taxi(t))
	addr := serve(t, api.New(withProducts(f, api.Options{Token: "t"}, products{tasks: new(store.TaskStore)})))
	for name, c := range map[string]struct {
		head string // but for the length
		want int
	}{
		"a large event": {"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Type: application/json\r\n", 413},
		"a large task": {"POST /v1/queues/thumbs/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Type: " +
			"application/json\r\n", 413},
		"of another type":  {"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Type: image/png\r\n", 415},
		"without a token":  {"PUT /admin/v1/configs/CITIES HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n", 401},
		"to another place": {"POST /v2/events HTTP/1.1\r\nHost: x\r\n", 404},
		"a large form":     {"POST /console/sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n", 413},
	} {
		for _, size := range []int{300 << 10, 6 << 20} {
			if size < api.DefaultMaxBody && strings.HasPrefix(name, "a large ") && name != "a large form" {
				continue // it would be taken in
			}
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, err = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", c.head, size, strings.Repeat("x", size))
			if err != nil {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			} else if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != c.want {
				t.Errorf("%s, %d bytes: have %v, %v, want %d", name, size, answer, err, c.want)
			}
			conn.Close()
		}
	}
}

// TestNoAnswerIsAnError serves what forgets to answer.
func TestNoAnswerIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDoorway(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer d.close()
		have := d.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n", func(halfPipe) {})
		if have.status != 500 || !strings.Contains(have.body, "internal_error") {
			t.Errorf("have %d %q, want 500", have.status, have.body)
		}
		synctest.Wait()
		if !strings.Contains(d.log.String(), "without an answer") {
			t.Errorf("have the log %q", d.log.String())
		}
	})
}
