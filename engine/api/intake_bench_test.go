package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"procaas/engine/api"
	"procaas/engine/api/intake"
	"procaas/engine/api/transport"
	"procaas/engine/budget"
	"procaas/engine/credentials"
	engineintake "procaas/engine/intake"
	"procaas/engine/model"
)

const (
	benchOrder  = `{"order-id": "o-42", "city": "north", "is-authorized": true, "tariff": "econom", "from": [55.75, 37.61], "to": [55.76, 37.64]}`
	benchPlain  = `{"type": "new-order-created", "id": "e-1", "source": "orders", "payload": ` + benchOrder + `}`
	benchCloud  = `{"specversion": "1.0", "type": "new-order-created", "id": "e-1", "source": "/orders", "data": ` + benchOrder + `}`
	benchTraced = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// benchAPI serves events, and keeps none.
func benchAPI(b *testing.B) http.Handler {
	o := withProducts(newFake(taxi(b)), api.Options{Memory: budget.New(1 << 30), Local: true})
	o.Engine.Intake = idleIntake{}
	return api.New(o)
}

// An idleIntake accepts everything and keeps nothing.
type idleIntake struct{ intake.Intake }

func (idleIntake) Overload() *engineintake.OverloadError { return nil }

func (idleIntake) RefuseSource(context.Context, credentials.Grant, string) (string, error) {
	return "", nil
}

func (idleIntake) Submit(_ context.Context, in []engineintake.Submission) ([]engineintake.Submitted, error) {
	out := make([]engineintake.Submitted, len(in))
	for i, s := range in {
		out[i].Receipt = model.Receipt{Event: s.Event.ID, Run: "06ct7s3fdpu7n78ad8u1obqe24"}
	}
	return out, nil
}

// A sink takes a reply and forgets it.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkAccept measures what a request with events costs behind net/http and before the engine.
func BenchmarkAccept(b *testing.B) {
	h := transport.Server(benchAPI(b), slog.New(slog.DiscardHandler)).Handler
	list := func(one string, n int) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	for _, request := range []struct{ name, contentType, body, parent string }{
		{"plain", "application/json", benchPlain, ""},
		{"traced", "application/json", benchPlain, benchTraced},
		{"structured", "application/cloudevents+json", benchCloud, ""},
		{"batch100", "application/cloudevents-batch+json", list(benchCloud, 100), ""},
		{"batch1000", "application/json", list(benchPlain, 1000), ""},
	} {
		b.Run(request.name, func(b *testing.B) {
			b.ReportAllocs()
			body, w := bytes.NewReader(nil), &sink{header: http.Header{}}
			template, err := http.NewRequest(http.MethodPost, "/v1/events", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			template.Host, template.RemoteAddr = "localhost:8080", "127.0.0.1:40000"
			template.ContentLength, template.Body = int64(len(request.body)), io.NopCloser(body)
			template.Header = http.Header{"Content-Type": {request.contentType}, "User-Agent": {"Go-http-client/1.1"}, "Accept-Encoding": {"gzip"}}
			if request.parent != "" {
				template.Header.Set("Traceparent", request.parent)
			}
			raw := []byte(request.body)
			for b.Loop() {
				r := *template
				body.Reset(raw)
				clear(w.header)
				h.ServeHTTP(w, &r)
				if w.status != http.StatusAccepted {
					b.Fatalf("have %d", w.status)
				}
			}
		})
	}
}

// BenchmarkAcceptOverTCP measures the same with net/http, on one connection of a client that costs little.
func BenchmarkAcceptOverTCP(b *testing.B) {
	l, err := transport.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := transport.Server(benchAPI(b), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	b.Cleanup(func() {
		_ = s.Close()
		<-served
	})
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	request := fmt.Appendf(nil, "POST /v1/events HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"+
		"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n%s", len(benchPlain), benchPlain)
	in := bufio.NewReader(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(request); err != nil {
			b.Fatal(err)
		}
		for line := []byte("HTTP/1.1 202"); len(line) > 2; { // up to the end of the header
			have, err := in.ReadSlice('\n')
			if err != nil || !bytes.HasPrefix(have, line[:min(len(line), 12)]) && len(line) == 12 {
				b.Fatalf("have %q, %v", have, err)
			}
			line = have
		}
		if body, err := in.ReadSlice('\n'); err != nil || !bytes.HasPrefix(body, []byte(`{"event":"e-1"`)) {
			b.Fatalf("have %q, %v", body, err)
		}
	}
}
