package stub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"procaas/dsl/diag"
	"procaas/engine/enginetest/patience"
	"procaas/engine/stub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestScripts runs the files of testdata/stub:
//
//	parse
//	a stub file
//	----
//	what is wrong with it
//
//	serve
//	a stub file
//	----
//
//	call GET orders /v1/orders key=k times=2
//	the body, JSON unless type says otherwise
//	----
//	the replies
//
//	incident ID on|off, and record
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../../testdata/stub", func(t *testing.T, path string) {
		s := &script{client: &http.Client{Transport: &http.Transport{}}}
		defer s.close()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

// A script is one file of testdata/stub while it runs.
type script struct {
	server *stub.Server
	client *http.Client
}

func (s *script) close() {
	if s.server != nil {
		s.server.Close()
		s.server = nil
	}
	s.client.CloseIdleConnections()
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "parse":
		_, found := stub.Parse([]diag.File{{Name: "a.stub.yaml", Data: []byte(d.Input)}})
		return describe(found)
	case "serve":
		s.close()
		spec, found := stub.Parse([]diag.File{{Name: "a.stub.yaml", Data: []byte(d.Input)}})
		if spec == nil {
			return describe(found)
		}
		var err error
		if s.server, err = stub.Start(context.Background(), spec, stub.Options{FreePorts: true}); err != nil {
			return err.Error() + "\n"
		}
		return fmt.Sprintf("incidents: %s\n", strings.Join(s.server.Incidents(), ", "))
	case "call":
		return s.call(t, d)
	case "incident":
		if err := s.server.SetIncident(d.CmdArgs[0].Key, d.CmdArgs[1].Key == "on"); err != nil {
			return err.Error() + "\n"
		}
		return ""
	case "record":
		return record(s.server.Record())
	}
	t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	return ""
}

func (s *script) call(t *testing.T, d *datadriven.TestData) string {
	args, times := map[string]string{}, 1
	for _, a := range d.CmdArgs[3:] {
		args[a.Key] = strings.Join(a.Vals, "")
	}
	if args["times"] != "" {
		fmt.Sscan(args["times"], &times)
	}
	url := s.server.URLs()[d.CmdArgs[1].Key] + d.CmdArgs[2].String()
	var out strings.Builder
	for range times {
		r, err := http.NewRequest(d.CmdArgs[0].Key, url, strings.NewReader(d.Input))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if args["type"] != "" {
			r.Header.Set("Content-Type", args["type"])
		}
		r.Header.Set("Idempotency-Key", args["key"])
		r.Header.Set("X-Color", "red")
		out.WriteString(show(s.client.Do(r)))
	}
	return out.String()
}

// show writes a reply without what changes from run to run.
func show(resp *http.Response, err error) string {
	if errors.Is(err, io.EOF) {
		return "hung up\n"
	}
	if err != nil {
		return err.Error() + "\n"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d", resp.StatusCode)
	for _, name := range []string{"Content-Type", "X-Shard"} {
		if value := resp.Header.Get(name); value != "" {
			fmt.Fprintf(&b, " %s=%s", name, value)
		}
	}
	fmt.Fprintf(&b, " %s\n", body)
	return b.String()
}

func record(r stub.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "calls %d, effects %d\n", r.Total, r.Effects)
	for _, c := range r.Calls {
		fmt.Fprintf(&b, "%s %s %s %s %d\n", c.Service, c.Method, c.Path, c.Key, c.Status)
	}
	var keys []string
	for key, t := range r.Keys {
		keys = append(keys, fmt.Sprintf("%s: %d calls, %d effects\n", key, t.Calls, t.Effects))
	}
	slices.Sort(keys)
	return b.String() + strings.Join(keys, "")
}

func describe(found []diag.Diagnostic) string {
	var b strings.Builder
	for _, d := range found {
		fmt.Fprintf(&b, "%d:%d: %s %s: %s\n", d.Start.Line, d.Start.Column, d.Severity, d.Code, d.Message)
		if d.Hint != "" {
			fmt.Fprintf(&b, "     %s\n", d.Hint)
		}
	}
	if b.Len() == 0 {
		return "fine\n"
	}
	return b.String()
}

// start serves one file for a test.
func start(tb testing.TB, text string) (*stub.Server, *http.Client) {
	tb.Helper()
	spec, found := stub.Parse([]diag.File{{Name: "a.stub.yaml", Data: []byte(text)}})
	if spec == nil {
		tb.Fatal(describe(found))
	}
	server, err := stub.Start(tb.Context(), spec, stub.Options{FreePorts: true})
	if err != nil {
		tb.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	tb.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return server, client
}

const flaky = `
seed: %d
services:
  - id: a
    routes:
      - path: /
        failure: {ratio: 0.3, status: 503}
`

// outcomes calls a service many times and writes down when it failed.
func outcomes(t *testing.T, seed int) string {
	server, client := start(t, fmt.Sprintf(flaky, seed))
	var out strings.Builder
	for range 200 {
		resp, err := client.Get(server.URLs()["a"])
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		out.WriteByte("0_2__5"[resp.StatusCode/100])
	}
	return out.String()
}

func TestChanceComesFromTheSeed(t *testing.T) {
	t.Parallel()
	first, again, other := outcomes(t, 1), outcomes(t, 1), outcomes(t, 2)
	if first != again {
		t.Errorf("the same seed gives\n%s and\n%s", first, again)
	}
	if first == other {
		t.Error("another seed gives the same chance")
	}
	if failed := strings.Count(first, "5"); failed < 30 || failed > 90 {
		t.Errorf("%d of 200 calls failed, want about 60", failed)
	}
}

func TestLatencyPasses(t *testing.T) {
	t.Parallel()
	server, client := start(t, "services: [{id: a, routes: [{path: /, latency: {min: 30ms, max: 40ms}}]}]")
	began := time.Now()
	resp, err := client.Get(server.URLs()["a"])
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("the answer came after %v, want 30ms or more", took)
	}
}

// A service that was called does its work, whether or not the caller waits.
func TestCallerWhoGivesUpIsCounted(t *testing.T) {
	t.Parallel()
	server, client := start(t, "services: [{id: a, routes: [{path: /, latency: 1h}]}]")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
	r, _ := http.NewRequestWithContext(ctx, "POST", server.URLs()["a"], nil)
	r.Header.Set("Idempotency-Key", "k")
	if _, err := client.Do(r); !errors.Is(err, context.Canceled) {
		t.Fatalf("have %v, want it cancelled", err)
	}
	patience.Until(t, "one call and one effect", func() bool { return server.Record().Keys["k"] == stub.Tally{Calls: 1, Effects: 1} })
}

func TestRecordIsReadableFromOutside(t *testing.T) {
	t.Parallel()
	server, client := start(t, "services: [{id: a, routes: [{path: /x}]}, {id: b, routes: [{path: /y}]}]")
	for _, path := range []string{server.URLs()["a"] + "/x", server.URLs()["b"] + "/y"} {
		resp, err := client.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	resp, err := client.Get(server.URLs()["b"] + "/__stub/calls")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var have stub.Record
	if err := json.NewDecoder(resp.Body).Decode(&have); err != nil {
		t.Fatal(err)
	}
	if have.Total != 2 || len(have.Calls) != 2 || have.Calls[0].Service != "a" || have.Calls[1].Path != "/y" || have.Calls[1].Status != 200 {
		t.Errorf("have %+v", have)
	}
}

func TestStartNamesTheServiceThatCannotListen(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	text := fmt.Sprintf("services: [{id: a, routes: [{path: /}]}, {id: b, listen: %q, routes: [{path: /}]}]", busy.Addr())
	spec, found := stub.Parse([]diag.File{{Name: "a.stub.yaml", Data: []byte(text)}})
	if spec == nil {
		t.Fatal(describe(found))
	}
	_, err = stub.Start(t.Context(), spec, stub.Options{})
	if err == nil || !strings.Contains(err.Error(), "stub service b") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("have %v, want an error about b", err)
	}
}

func TestServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	spec, _ := stub.Parse([]diag.File{{Name: "a.stub.yaml", Data: []byte("services: [{id: a, routes: [{path: /}]}]")}})
	ctx, cancel := context.WithCancel(t.Context())
	server, err := stub.Start(ctx, spec, stub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(server.URLs()["a"], "http://")
	cancel()
	patience.Until(t, "the service listens no more", func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return true
		}
		conn.Close()
		return false
	})
	server.Close()
}

// Files that anybody may write never crash it, and what is fine can be served.
func FuzzParse(f *testing.F) {
	taxi, err := os.ReadFile("../../pipelines/taxi/taxi.stub.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(taxi))
	f.Add("services: [{id: a, listen: 0.0.0.0:80, routes: [{path: '/{a}/{a}', latency: {min: 2s, max: 1s}}]}]")
	f.Add("services: [{id: a, routes: [{path: /, when: !$ calls, reply: {headers: {a: !$ request}}}], incidents: [{id: b}]}]")
	f.Add("services: [null, {id: a, routes: [null]}]")
	f.Fuzz(func(t *testing.T, text string) {
		spec, found := stub.Parse([]diag.File{{Name: "f.stub.yaml", Data: []byte(text)}})
		if (spec == nil) != diag.HasErrors(found) {
			t.Errorf("have spec %v and findings\n%s", spec, describe(found))
		}
	})
}

func BenchmarkServer(b *testing.B) {
	server, client := start(b, `
services:
  - id: a
    routes:
      - {method: GET, path: /v1/none}
      - method: POST
        path: /v1/orders/{id}
        when: !$ request.body.n > 0
        reply:
          body:
            id: !$ request.params.id
`)
	url := server.URLs()["a"] + "/v1/orders/o-1"
	var once sync.Once
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(url, "application/json", strings.NewReader(`{"n": 1}`))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				once.Do(func() { b.Error(resp.Status, err) })
			}
			resp.Body.Close()
		}
	})
}
