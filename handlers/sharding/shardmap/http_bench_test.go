package shardmap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api"
	"procaas/engine/api/transport"
	shardingapi "procaas/handlers/sharding/api"
	"procaas/handlers/sharding/transfers"
)

var askers = flag.Int("askers", 16, "connections of BenchmarkHTTP")

// BenchmarkHTTP compares resolving by the API, on the server that serves it, with a bare
// handler of net/http that looks into a map of Go and answers with as much JSON: in turns of a
// quarter of a second, so that both meet the same machine. One operation is a turn of each.
//
// It shows requests a second, the processor time of a request, the client's share included,
// the slowest of 97 % of the requests, the ratio of the rates, and the memory of the map.
func BenchmarkHTTP(b *testing.B) {
	m, keys := benchMap(), benchKeys()
	fresh(m)
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	plain := map[string]transfers.ShardAnswer{}
	for _, key := range keys {
		a, err := m.Resolve(b.Context(), transfers.ShardQuestion{Key: key})
		if err != nil {
			b.Fatal(err)
		}
		plain[key] = a
	}
	bare := http.NewServeMux()
	bare.HandleFunc("GET /v1/shard-maps/{map}/resolve", func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		if err := json.NewEncoder(&body).Encode(plain[r.URL.Query().Get("key")]); err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body.Bytes())
	})
	sides := []*side{{name: "bare"}, {name: "api"}}
	sides[0].start(b, &http.Server{Handler: bare}, keys)
	sides[1].start(b, transport.Server(api.New(api.Options{
		Engine: api.Ports{Access: unguarded{}, Health: unguarded{}}, Groups: []api.Group{shardingapi.Calls(only{m: m}, nil)},
		Local: true,
	}), slog.New(slog.DiscardHandler)), keys)
	turns := 0
	for b.Loop() {
		for i := range sides {
			fresh(m) // what is known is never older than three seconds
			sides[(i+turns)%2].turn(b)
		}
		turns++
	}
	for _, s := range sides {
		slices.Sort(s.waits)
		b.ReportMetric(s.rate(), s.name+"-rps")
		b.ReportMetric(s.processor.Seconds()*1e6/float64(len(s.waits)), s.name+"-cpu-us")
		b.ReportMetric(s.waits[len(s.waits)*97/100].Seconds()*1e3, s.name+"-p97-ms")
	}
	b.ReportMetric(sides[1].rate()/sides[0].rate(), "ratio")
	b.ReportMetric(float64(memory.HeapAlloc)/1e6, "map-MB")
	b.ReportMetric(0, "ns/op")
}

// A side is one of two servers that are compared.
type side struct {
	name      string
	askers    []*asker
	waits     []time.Duration
	spent     time.Duration
	processor time.Duration
}

func (s *side) rate() float64 { return float64(len(s.waits)) / s.spent.Seconds() }

func (s *side) start(b *testing.B, server *http.Server, keys []string) {
	l, err := transport.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
	for range *askers {
		c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		s.askers = append(s.askers, &asker{c: c, r: bufio.NewReader(c), keys: keys})
	}
}

// turn asks on all connections at once for a while.
func (s *side) turn(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), 250*time.Millisecond)
	defer cancel()
	before, began := processorTime(), time.Now()
	var asking sync.WaitGroup
	for _, a := range s.askers {
		asking.Go(func() {
			for i := rand.IntN(len(a.keys)); ctx.Err() == nil; i++ {
				if err := a.ask(a.keys[i&(len(a.keys)-1)]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	asking.Wait()
	s.spent += time.Since(began)
	s.processor += processorTime() - before
	for _, a := range s.askers {
		s.waits = append(s.waits, a.waits...)
		a.waits = a.waits[:0]
	}
}

// An asker sends requests over one connection, one after the other, at as little cost as it
// can: what is compared is the servers.
type asker struct {
	c     net.Conn
	r     *bufio.Reader
	keys  []string
	waits []time.Duration
	text  []byte
}

func (a *asker) ask(key string) error {
	a.text = append(append(append(a.text[:0], "GET /v1/shard-maps/many/resolve?mode=master&key="...), key...),
		" HTTP/1.1\r\nHost: localhost\r\n\r\n"...)
	began := time.Now()
	if _, err := a.c.Write(a.text); err != nil {
		return err
	}
	length := 0
	for first := true; ; first = false {
		line, err := a.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		switch text, found := bytes.CutPrefix(line, []byte("Content-Length: ")); {
		case first && !strings.HasPrefix(string(line), "HTTP/1.1 200"):
			return fmt.Errorf("answer: %s", line)
		case found:
			for _, digit := range bytes.TrimSpace(text) {
				length = 10*length + int(digit-'0')
			}
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	if _, err := a.r.Discard(length); err != nil {
		return err
	}
	a.waits = append(a.waits, time.Since(began))
	return nil
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
