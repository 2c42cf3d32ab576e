package handlers_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/intake"
	"procaas/engine/model"
	"procaas/engine/store"
	"procaas/handlers"
)

// BenchmarkFlowOfRequests is one run of three requests, with 64 in flight. The store keeps all in memory, and the service
// allocates nothing, so it measures the engine and its calls.
func BenchmarkFlowOfRequests(b *testing.B) {
	for _, bc := range []struct{ name, body string }{
		{"computed", "{order: !$ event.payload.order, step: 0}"},
		{"literal", "{order: {id: o-1, tariff: econom}, step: 0}"},
	} {
		b.Run(bc.name, func(b *testing.B) { benchmarkFlow(b, bc.body) })
	}
}

func benchmarkFlow(b *testing.B, body string) {
	const inFlight = 64
	types := handlers.All()
	bundle := enginetest.Load(b, fmt.Sprintf(`
services: [{id: noop, url: %q}]
pipelines:
  - id: call
    shared-state: {a: null, b: null, c: null}
    stages:
      - {id: first, handlers: [{id: one, request: {service: noop, path: /, body: %[2]s}, result: {a: !$ sources.one.response}}]}
      - {id: second, handlers: [{id: two, request: {service: noop, path: /, body: %[2]s}, result: {b: !$ sources.two.response}}]}
      - {id: third, handlers: [{id: three, request: {service: noop, path: /, body: %[2]s}, result: {c: !$ sources.three.response}}]}
`, "http://"+startQuietService(b), body), types...)
	ended := make(chan struct{}, inFlight)
	db := enginetest.NewMemory().Ports()
	db.Ledger = &endings{db.Ledger, ended}
	e, err := engine.New(engine.Options{Store: db, Types: types, Bundle: bundle})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	defer running.Wait()
	defer cancel()

	slots := make(chan struct{}, inFlight)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		slots <- struct{}{}
		running.Go(func() {
			out, err := e.Submit(ctx, []intake.Submission{{Event: model.Event{
				ID: strconv.Itoa(i), Type: "call", Payload: map[string]any{"order": map[string]any{"id": "o-1", "tariff": "econom"}},
			}}})
			if err != nil || out[0].Err != nil {
				b.Error(err, out)
			}
			<-ended
			<-slots
		})
	}
	for range inFlight {
		slots <- struct{}{}
	}
}

// An endings ledger reports the runs that have succeeded.
type endings struct {
	store.Ledger
	ended chan struct{}
}

func (s *endings) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	errs, err := s.Ledger.Commit(ctx, node, changes)
	for i, c := range changes {
		if err == nil && errs[i] == nil && c.Status.Ended() {
			if c.Status != model.Succeeded {
				panic("a run of the benchmark has failed: " + c.Error)
			}
			s.ended <- struct{}{}
		}
	}
	return errs, err
}

// startQuietService answers all requests in the same way until the end of the benchmark, and allocates nothing for it.
func startQuietService(b *testing.B) (address string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				answer(c)
			}()
		}
	}()
	return l.Addr().String()
}

// answer answers the requests of a connection until it ends.
func answer(c net.Conn) {
	const body = `{"id": "o-1", "tariff": "econom", "price": 199}`
	reply := []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Mon, 05 Jan 2026 10:00:00 GMT\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	in, have := make([]byte, 16<<10), 0
	for {
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		head, rest, whole := bytes.Cut(in[:have], []byte("\r\n\r\n"))
		if _, after, ok := bytes.Cut(head, []byte("Content-Length: ")); ok && whole {
			length := 0
			for i := 0; i < len(after) && '0' <= after[i] && after[i] <= '9'; i++ {
				length = 10*length + int(after[i]-'0')
			}
			whole = len(rest) >= length
		}
		if !whole {
			continue
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
		have = 0
	}
}
