package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
)

// A signalled is a node in one of the states of the table in docs/operating/deploy.md.
type signalled struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.WriteCloser
	release func() // ends the call in flight
	mu      sync.Mutex
	log     bytes.Buffer
	news    chan struct{} // size 1: the log has grown, or ended
	ended   chan struct{}
}

const oneCall = `
services: [{id: slow, url: %s}]
pipelines:
  - id: work
    stages: [{id: only, handlers: [{id: call, request: {service: slow, path: /, timeout: 1m}}]}]
`

// serveHere starts a node. It returns before the node has read its pipelines, if these are "-".
func serveHere(t *testing.T, pipelines, store, listen string) *signalled {
	t.Helper()
	return startSignalled(t, exec.CommandContext(t.Context(), "procaas", "serve", "--pipelines", pipelines, "--store", store,
		"--listen", listen, "--log-format", "json"))
}

// startSignalled starts a node, and reads its log.
func startSignalled(t *testing.T, cmd *exec.Cmd) *signalled {
	t.Helper()
	s := &signalled{t: t, cmd: cmd, news: make(chan struct{}, 1), ended: make(chan struct{}), release: func() {}}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		for lines := bufio.NewReader(stderr); ; {
			line, err := lines.ReadString('\n')
			s.mu.Lock()
			s.log.WriteString(line)
			s.mu.Unlock()
			select {
			case s.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.release()
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

func (s *signalled) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// says waits for a text in the log.
func (s *signalled) says(text string) {
	s.t.Helper()
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.news:
		case <-s.ended:
			if !strings.Contains(s.text(), text) {
				s.t.Fatalf("want %q in the log, have %s", text, s.text())
			}
		}
	}
}

func (s *signalled) send(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Errorf("%v: %v", sig, err)
	}
}

// exits waits for the end and returns the exit code, or a text for a signal.
func (s *signalled) exits() string {
	<-s.ended
	var failed *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &failed) {
		return err.Error()
	}
	return s.cmd.ProcessState.String()
}

// The states of a node that starts, works and ends.
var states = map[string]func(t *testing.T) *signalled{
	"starting": func(t *testing.T) *signalled {
		s := serveHere(t, "-", "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "127.0.0.1:0")
		// It reads more than fits into a pipe, so it is about to load its pipelines.
		if _, err := io.WriteString(s.in, strings.Repeat("# not all yet\n", 20000)); err != nil {
			t.Fatal(err)
		}
		return s
	},
	"waiting for the store": func(t *testing.T) *signalled {
		s := serveHere(t, taxiDir, "postgres://procaas@"+freeAddress(t)+"/procaas", "127.0.0.1:0")
		s.says("store cannot be reached")
		return s
	},
	"serving": func(t *testing.T) *signalled {
		s := serveHere(t, taxiDir, "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "127.0.0.1:0")
		s.says(`"serving"`)
		return s
	},
	"draining": func(t *testing.T) *signalled {
		called := make(chan struct{})
		free, release := context.WithCancel(context.Background())
		slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(called)
			<-free.Done()
		}))
		t.Cleanup(slow.Close)
		listen := freeAddress(t)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "work.yaml"), fmt.Appendf(nil, oneCall, slow.URL), 0o600); err != nil {
			t.Fatal(err)
		}
		s := serveHere(t, dir, "sqlite:"+filepath.Join(t.TempDir(), "s.db"), listen)
		s.release = release
		s.says(`"serving"`)
		if _, err := client.New("http://"+listen, "").SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
			t.Fatal(err)
		}
		<-called
		s.send(syscall.SIGTERM)
		for { // it no longer listens once it drains
			c, err := net.Dial("tcp", listen)
			if err != nil {
				return s
			}
			_ = c.Close()
			clock.Pause(t.Context(), 5*time.Millisecond)
		}
	},
}

// TestSignals goes through the table in docs/operating/deploy.md.
func TestSignals(t *testing.T) {
	t.Parallel()
	const (
		stays = "stays" // a SIGTERM after the signal ends it in good order
		dumps = "exit status 2"
		fine  = "exit status 0"
		now   = "exit status 130"
	)
	for state, reach := range states {
		for _, c := range []struct {
			name    string
			signals []syscall.Signal
			want    string
		}{
			{"SIGTERM", []syscall.Signal{syscall.SIGTERM}, fine},
			{"SIGINT", []syscall.Signal{syscall.SIGINT}, fine},
			{"SIGHUP", []syscall.Signal{syscall.SIGHUP}, stays},
			{"SIGPIPE", []syscall.Signal{syscall.SIGPIPE}, stays},
			{"SIGQUIT", []syscall.Signal{syscall.SIGQUIT}, dumps},
		} {
			t.Run(state+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := reach(t)
				for _, sig := range c.signals {
					s.send(sig)
				}
				want := c.want
				switch {
				case state == "draining" && c.name == "SIGINT":
					want = now // the SIGTERM came before it
				case state == "draining" && want != dumps:
					s.send(syscall.SIGTERM) // another one changes nothing
					s.release()
					want = fine
				case state == "serving" && c.name == "SIGHUP":
					s.says("pipelines are reloaded")
					fallthrough
				case want == stays:
					s.send(syscall.SIGTERM)
					want = fine
				}
				if have := s.exits(); have != want {
					t.Errorf("want %s, have %s; the log is %s", want, have, s.text())
				}
				if want == dumps && !strings.Contains(s.text(), "goroutine ") {
					t.Errorf("want the stacks, have %s", s.text())
				}
			})
		}
	}
}

// TestASignalBeforeTheNodeServesIsNotLost sends SIGHUP to a node that reads its pipelines. They may have changed since.
func TestASignalBeforeTheNodeServesIsNotLost(t *testing.T) {
	t.Parallel()
	s := states["starting"](t)
	s.send(syscall.SIGHUP)
	_, _ = io.WriteString(s.in, "pipelines: [{id: work, stages: [{id: only, handlers: [{id: set, set: {}}]}]}]\n")
	_ = s.in.Close()
	s.says(`"serving"`)
	s.says("the new pipelines are refused") // standard input has none a second time
	s.send(syscall.SIGTERM)
	if have := s.exits(); have != "exit status 0" {
		t.Errorf("have %s; the log is %s", have, s.text())
	}
}

// TestALogThatNobodyReadsHoldsNothingUp runs a node whose log has no room from the start, and then no reader.
func TestALogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	reader, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	_ = log.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // only ends the filling
	for err == nil {
		_, err = log.Write(make([]byte, 1<<10))
	}
	listen := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), "procaas", "serve", "--pipelines", taxiDir, "--listen", listen,
		"--store", "sqlite:"+filepath.Join(t.TempDir(), "s.db"), "--log-level", "debug")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_ = log.Close()
	metric := func() string {
		reply, err := http.Get("http://" + listen + "/metrics")
		if err != nil {
			return ""
		}
		defer reply.Body.Close()
		text, _ := io.ReadAll(reply.Body)
		_, after, _ := strings.Cut(string(text), "\nprocaas_log_dropped_total ")
		value, _, _ := strings.Cut(after, "\n")
		return value
	}
	for metric() == "" {
		if !clock.Pause(t.Context(), 10*time.Millisecond) {
			t.Fatal("the node does not serve")
		}
	}
	if have := metric(); have != "0" {
		t.Errorf("want all lines in the queue, have %s lost", have)
	}
	_ = reader.Close() // from now on, writing is an error
	for metric() == "0" {
		if !clock.Pause(t.Context(), 10*time.Millisecond) {
			t.Fatal("no line is lost")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("want a good end, have %v", err)
	}
}

// TestAStoppedReaderOfTheLogKeepsNoNode lets a node drain whose log has no room.
func TestAStoppedReaderOfTheLogKeepsNoNode(t *testing.T) {
	t.Parallel()
	reader, log := io.Pipe()
	defer reader.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	code := Main(ctx, []string{
		"serve", "--pipelines", taxiDir, "--store", "sqlite:" + filepath.Join(t.TempDir(), "s.db"), "--listen", "127.0.0.1:0",
	}, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: log})
	if code != cli.ExitFine {
		t.Errorf("have exit code %d", code)
	}
}
