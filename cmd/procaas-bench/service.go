package main

import (
	"bufio"
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
)

// The service that all contestants call is a process of its own, so that what it
// costs is the same for all and is counted for none.

// serviceArg makes this program the service.
const serviceArg = "serve-nothing"

// reply is what the service answers, whatever it is asked.
const reply = `{"ok":true,"id":"0123456789abcdef"}`

// lastPath is the path of a flow's last call: the service prints the flow's id for each.
const lastPath = "/last"

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
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == lastPath {
			var call struct{ Order string }
			if json.Unmarshal(body, &call) == nil {
				fmt.Println(call.Order)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply)
	}))
	fmt.Fprintln(os.Stderr, "service:", err)
	os.Exit(1)
}

// A service is the running service process.
type service struct {
	url   string
	cmd   *exec.Cmd
	alive io.Closer // its input

	awaited sync.Map // flow → chan struct{}, closed when the service gets its last call
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
	go s.lastCalls(lines) // ends with the process
	return s, nil
}

func (s *service) stop() error { return errors.Join(s.alive.Close(), s.cmd.Wait()) }
