package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// The service is a process of its own. So its cost is equal for all contestants, and not counted.

// serviceArg starts this program as the service.
const serviceArg = "serve-nothing"

// reply is the answer to every request.
const reply = `{"ok":true,"id":"0123456789abcdef"}`

// timedPath is the path of a call that takes the milliseconds that its body says.
const timedPath = "/timed"

// The service prints a line with the id of the flow for these calls.
const (
	lastPath = "/last" // last call of a flow
	slowPath = "/slow" // a call that takes slowCall
	cutOff   = "cut-off"
)

const slowCall = 500 * time.Millisecond

// serve answers requests until its input ends.
func serve() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
	fmt.Println("http://" + l.Addr().String())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	err = http.Serve(l, http.HandlerFunc(answer))
	fmt.Fprintln(os.Stderr, "service:", err)
	os.Exit(1)
}

func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path != "/" {
		var call struct {
			Order string
			Takes int // milliseconds
		}
		_ = json.Unmarshal(body, &call)
		if r.URL.Path == timedPath {
			select {
			case <-time.After(time.Duration(call.Takes) * time.Millisecond):
			case <-r.Context().Done():
			}
			return
		}
		fmt.Println(r.URL.Path, call.Order)
		if r.URL.Path == slowPath {
			select {
			case <-time.After(slowCall):
			case <-r.Context().Done():
				fmt.Println(cutOff, call.Order)
				return
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, reply)
}

// A service is the running service process.
type service struct {
	url   string
	cmd   *exec.Cmd
	alive io.Closer // its standard input

	awaited sync.Map // flow → chan struct{}, closed when the service gets its last call

	mu    sync.Mutex // guards heard
	heard []heard    // of slow calls
}

// heard is a line about a slow call.
type heard struct {
	what, flow string
	at         time.Time
}

func startService() (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &service{cmd: exec.Command(self, serviceArg)}
	s.cmd.Stderr = os.Stderr
	if s.alive, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("service does not start: %w", err), s.stop())
	}
	s.url = strings.TrimSpace(line)
	go s.listen(lines) // it ends with the process
	return s, nil
}

func (s *service) stop() error { return errors.Join(s.alive.Close(), s.cmd.Wait()) }

// pipelines returns the flows of the contest, which call the service.
func (s *service) pipelines() []byte {
	return fmt.Appendf(nil, pipelines, s.url, lastPath, slowPath, timedPath)
}

// listen reads the output of the service.
func (s *service) listen(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		what, flow, _ := strings.Cut(strings.TrimSpace(line), " ")
		if what != lastPath {
			s.mu.Lock()
			s.heard = append(s.heard, heard{what, flow, time.Now()})
			s.mu.Unlock()
		} else if c, ok := s.awaited.LoadAndDelete(flow); ok {
			close(c.(chan struct{}))
		}
	}
}

// expect returns a channel that is closed when the service gets the last call of a flow.
func (s *service) expect(flow string) <-chan struct{} {
	c := make(chan struct{})
	s.awaited.Store(flow, c)
	return c
}

func waitFor(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget forgets earlier slow calls.
func (s *service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = nil
}

// slow returns how many slow calls have begun.
func (s *service) slow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.heard)
}

// resumed returns how many calls were cut off, and when the last of them was repeated.
func (s *service) resumed() (calls int, last time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := map[string]bool{}
	for _, h := range s.heard {
		if h.what == cutOff {
			cut[h.flow] = true
			calls++
		} else if cut[h.flow] {
			delete(cut, h.flow)
			last = h.at
		}
	}
	if calls == 0 || len(cut) > 0 {
		err = fmt.Errorf("want all calls that were cut off made again, have %d of %d left", len(cut), calls)
	}
	return calls, last, err
}
