package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
)

// A served command is procaas serve in this process.
type served struct {
	t      *testing.T
	url    string
	stop   context.CancelFunc
	ended  chan int
	mu     sync.Mutex // guards output
	output bytes.Buffer
}

// Write implements [io.Writer].
func (s *served) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.Write(p)
}

func (s *served) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.output.String()
}

// serveOn starts procaas serve on a store.
func serveOn(t *testing.T, store string) *served { return serveFile(t, store, failing) }

// serveFile starts procaas serve with a file of pipelines.
func serveFile(t *testing.T, store, pipelines string) *served {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(pipelines), 0o644); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{t: t, url: "http://" + address, stop: cancel, ended: make(chan int, 1)}
	go func() {
		s.ended <- Main(ctx, []string{"serve", "--store", store, "--pipelines", dir, "--listen", address, "--log-format", "json"},
			cli.Streams{In: strings.NewReader(""), Out: s, Err: s})
	}()
	t.Cleanup(cancel)
	return s
}

// status returns the status of a reply, 0 for none.
func (s *served) status(path string) int {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = reply.Body.Close()
	return reply.StatusCode
}

func (s *served) becomes(path string, status int) {
	s.t.Helper()
	for over := patience.Over(time.Minute); s.status(path) != status; clock.Pause(s.t.Context(), 10*time.Millisecond) {
		if over() {
			s.t.Fatalf("%s is %d, want %d\n%s", path, s.status(path), status, s.said())
		}
	}
}

// end waits for the exit code.
func (s *served) end(want int, words ...string) {
	s.t.Helper()
	select {
	case code := <-s.ended:
		if code != want {
			s.t.Errorf("want exit code %d, have %d\n%s", want, code, s.said())
		}
	case <-patience.After(s.t, time.Minute):
		s.t.Fatalf("it does not end\n%s", s.said())
	}
	for _, w := range words {
		if !strings.Contains(s.said(), w) {
			s.t.Errorf("want it to say %q, have\n%s", w, s.said())
		}
	}
}

func TestServeWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	db := enginetest.OwnPostgres(t)
	if err := db.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}
	impatient := serveOn(t, db.URL)
	impatient.becomes("/healthz", http.StatusOK)
	impatient.stop()
	impatient.end(cli.ExitFine, "store cannot be reached, trying again")

	s := serveOn(t, db.URL)
	s.becomes("/readyz", http.StatusServiceUnavailable)
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/v1/runs": http.StatusServiceUnavailable} {
		if have := s.status(path); have != want {
			t.Errorf("%s: want %d while the store is away, have %d", path, want, have)
		}
	}
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.becomes("/readyz", http.StatusOK)
	s.becomes("/v1/runs", http.StatusOK)
	s.stop()
	s.end(cli.ExitFine, "store is there", `"msg":"serving"`)
}

func TestServeRefusesAStoreThatWillNeverDo(t *testing.T) {
	t.Parallel()
	dsn := enginetest.Postgres(t)
	for _, c := range []struct{ store, says string }{
		{strings.Replace(dsn, "/postgres?", "/nowhere?", 1), `database "nowhere" does not exist`},
		{strings.Replace(dsn, "postgres@", "nobody-knows-me@", 1), `role "nobody-knows-me" does not exist`},
		{strings.Replace(dsn, "sslmode=disable", "sslmode=verify-full", 1), "refused TLS"},
		{dsn + "&options=-csynchronous_commit%3Doff", "synchronous_commit is off"},
		{"postgres://[", "cannot parse"},
	} {
		serveOn(t, c.store).end(cli.ExitBroken, c.says)
	}
	serveOn(t, "mysql://h/d").end(cli.ExitUsage, "want postgres://")
}

// With a standby among the hosts, the nodes take the primary, wherever it is named.
func TestServeFindsThePrimaryAmongSeveralHosts(t *testing.T) {
	t.Parallel()
	primary := enginetest.OwnPostgres(t)
	standby := enginetest.StandbyOf(t, primary)
	both := standby.Addr() + "," + primary.Addr()
	s := serveOn(t, strings.Replace(primary.URL, primary.Addr(), both, 1)+"&target_session_attrs=read-write")
	s.becomes("/readyz", http.StatusOK)
	s.stop()
	s.end(cli.ExitFine)

	// While there is none, they wait.
	if err := primary.Halt(enginetest.StopFast); err != nil {
		t.Fatal(err)
	}
	s = serveOn(t, strings.Replace(primary.URL, primary.Addr(), both, 1)+"&target_session_attrs=read-write")
	s.becomes("/readyz", http.StatusServiceUnavailable)
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.becomes("/readyz", http.StatusOK)
	s.stop()
	s.end(cli.ExitFine, "store cannot be reached, trying again", "store is there")
}

// A mistyped flag is reported as such, whether the address is free or not.
func TestServeReadsItsFlagsBeforeItListens(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(failing+unwatched), 0o644); err != nil {
		t.Fatal(err)
	}
	right := "sqlite:" + filepath.Join(t.TempDir(), "o.db")
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--store", "mysql://x"}, "want postgres://… or sqlite:FILE"},
		{[]string{"--store", "sqlite:"}, "want sqlite:FILE"},
		{[]string{"--store", right, "--cell", "b=postgres://b/p"}, "--cell needs a --store that is postgres://…"},
		{[]string{"--store", "postgres://a/p", "--cell", "b"}, "want NAME=postgres://…"},
		{[]string{"--store", right, "--proxy", "fanuot=:0"}, "did you mean fanout?"},
		{[]string{"--store", right, "--proxy", "fanout=here"}, "want :PORT or HOST:PORT"},
		{[]string{"--store", right, "--proxy-key", "fanout=header:X-User"}, "there is no --proxy for the cluster"},
	} {
		var out lockedBuffer
		args := append([]string{"serve", "--listen", taken.Addr().String(), "--pipelines", dir}, c.flags...)
		code := Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if code != cli.ExitUsage || !strings.Contains(out.text(), c.want) {
			t.Errorf("%q: want exit code %d and %q, have %d and\n%s", c.flags, cli.ExitUsage, c.want, code, out.text())
		}
	}
}
