package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"procaas/engine/api/transport"
)

// A node is a process of the built binary, with the defaults of serve.
type node struct {
	began time.Time // just before the process began
	cmd   *exec.Cmd
	log   bytes.Buffer // its output; read it after the process has ended
	url   string
}

// startNode starts a process and waits until it is ready. It uses that many processors, or all if procs is 0.
func startNode(ctx context.Context, binary string, procs int, flags ...string) (*node, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--listen", address}, flags...)
	n := &node{url: "http://" + address, cmd: exec.Command(binary, args...)}
	if procs > 0 {
		n.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(procs))
	}
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	n.began = time.Now()
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	if err := n.ready(ctx); err != nil {
		err = errors.Join(err, n.stop())
		return nil, fmt.Errorf("%s serve: %w: %s", binary, err, &n.log)
	}
	return n, nil
}

// freeAddress returns an address that was just free.
func freeAddress(ctx context.Context) (string, error) {
	l, err := transport.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startWithin is how long the binary may take to become ready.
const startWithin = 30 * time.Second

func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	err := poll(ctx, 10*time.Millisecond, func() (bool, error) {
		resp, err := http.Get(n.url + "/readyz")
		if err != nil {
			return false, nil // it does not listen yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not ready within %s", startWithin)
	}
	return err
}

// stop ends the process with SIGTERM.
func (n *node) stop() error { return errors.Join(n.cmd.Process.Signal(syscall.SIGTERM), n.cmd.Wait()) }

// kill ends the process with kill -9.
func (n *node) kill() error {
	err := n.cmd.Process.Kill()
	_ = n.cmd.Wait() // the error that it was killed
	return err
}

// poll asks until the answer is yes.
func poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	for {
		if yes, err := ask(); err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// newClient returns a client that keeps a connection per flow.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024}}
}

// call posts body as JSON, or sends a GET if body is nil. It decodes the reply into out, unless that is nil.
func call(ctx context.Context, c *http.Client, url string, body, out any) error {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		method, content = http.MethodPost, bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: status %d: %s", method, url, resp.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}
