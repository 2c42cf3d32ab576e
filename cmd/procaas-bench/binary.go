package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"procaas/engine/api/transport"
	"procaas/engine/api/wire"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A binary is procaas as its users run it: a process of its own with the defaults of serve,
// which gets one request for each event.
type binary struct {
	cmd     *exec.Cmd
	log     bytes.Buffer // what it printed, for errors
	dir     string
	url     string
	client  *http.Client
	service *service
	pool    *pgxpool.Pool // to look for runs that have ended

	mu   sync.Mutex        // guards runs
	runs map[string]string // flow → run, of flows that are not known to be durable
}

// openBinary starts the built binary in a schema of its own.
func openBinary(ctx context.Context, b *bench) (_ contestant, err error) {
	dsn, err := b.server.schema(ctx, "built")
	if err != nil {
		return nil, err
	}
	p := &binary{service: b.service, runs: map[string]string{}}
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}
	if p.dir, err = os.MkdirTemp("", "procaas-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s serve: %w: %s", b.binary, err, &p.log), p.close())
		}
	}()
	file := filepath.Join(p.dir, "bench.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, pipelines, b.service.url, lastPath), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p.url = "http://" + address
	p.cmd = exec.Command(b.binary, "serve", "--store", dsn, "--pipelines", file, "--listen", address, "--log-level", "warn")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	p.pool, err = pgxpool.New(ctx, dsn)
	return p, err
}

// freeAddress returns an address that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	l, err := transport.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// startWithin is how long the binary may take until it is ready.
const startWithin = 30 * time.Second

func (p *binary) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		resp, err := p.client.Get(p.url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s", startWithin)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// flow posts an event, and returns when the service has got the last call.
func (p *binary) flow(ctx context.Context, id string) error {
	last := p.service.expect(id)
	body, err := json.Marshal(wire.Event{Type: "call", Payload: map[string]any{"order": id}})
	if err != nil {
		return err
	}
	resp, err := p.client.Post(p.url+"/v1/events", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var receipt wire.Receipt
	if err := json.Unmarshal(data, &receipt); err != nil || resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("want status 202 and a receipt, have %d: %s", resp.StatusCode, data)
	}
	p.mu.Lock()
	p.runs[id] = receipt.Run
	p.mu.Unlock()
	select {
	case <-last:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// durablePoll is how long to wait before looking again whether runs have ended.
const durablePoll = 300 * time.Microsecond

// durable implements contestant: it asks the database for the rows of ended runs.
func (p *binary) durable(ctx context.Context, ids []string) error {
	runs := make([]string, len(ids))
	p.mu.Lock()
	for i, id := range ids {
		runs[i] = p.runs[id]
		delete(p.runs, id)
	}
	p.mu.Unlock()
	for {
		var ended int
		err := p.pool.QueryRow(ctx, "select count(*) from history where id = any($1) and status = 'succeeded'", runs).Scan(&ended)
		if err != nil {
			return err
		}
		if ended == len(ids) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(durablePoll):
		}
	}
}

// cpu returns the processor time that the process has used.
func (p *binary) cpu() time.Duration {
	stat, err := readStat(strconv.Itoa(p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	return stat.own
}

func (p *binary) close() error {
	if p.pool != nil {
		p.pool.Close()
	}
	var err error
	if p.cmd != nil && p.cmd.Process != nil {
		err = errors.Join(err, p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait())
	}
	p.client.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(p.dir))
}

// lastCalls hands on the flows whose last call the service has got: a line for each.
func (s *service) lastCalls(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if c, ok := s.awaited.LoadAndDelete(strings.TrimSpace(line)); ok {
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
