package handlers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"procaas/cmd/procaas/addons"
	"procaas/dsl"
	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/tree"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/handlers"
)

// The text around the handlers of the scripts.
const (
	neighbours = `
services:
  - {id: orders, url: "http://orders.example:9081/base", timeout: 2s}
  - {id: payments, url: "https://payments.example"}
clusters:
  - {id: fanout, partitions: 4, workers: [{id: w1, url: "http://w1.example"}, {id: w2, url: "http://w2.example"}]}
brokers:
  - {id: hub, kind: nats, servers: ["nats://hub.example:4222"]}
  - {id: log, kind: kafka, servers: ["log.example:9092"]}
  - {id: rabbit, kind: rabbitmq, servers: ["amqp://rabbit.example:5672"]}
databases:
  - {id: billing, address: "postgres://procaas@billing.example/billing"}
flows:
  - {id: order, key: !$ event.payload.id}
  - {id: driver}
configs: {TARIFFS: [econom, business]}
pipelines:
  - {id: rating-wanted, flow: order, stages: [{id: s, handlers: [{id: h, set: {}}]}]}
  - {id: driver-paid, flow: driver, on: [driver-paid, driver-fined], stages: [{id: s, handlers: [{id: h, set: {}}]}]}
`
	before = `pipelines:
  - id: p
    shared-state: {order: {id: 7, tariff: null}, distance: 3, price: 0, currency: EUR, none: null, list: [a, b]}
    stages:
      - id: s
        handlers:
`
	margin = "          "
)

// TestScripts runs the files of testdata/handlers:
//
//	validate
//	handlers in YAML
//	----
//	what is wrong with them, at line:column of the text above; with alone, nothing is declared but the handlers
//
//	call status=200 type=application/json reply={"a":1}
//	a handler in YAML
//	----
//	what it sends and what it makes of the reply
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "../testdata/handlers", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "validate":
				_, found := load(d.Input, d.HasArg("alone"))
				return describe(found)
			case "call":
				bundle, found := load(d.Input, false)
				if bundle == nil {
					return describe(found)
				}
				return call(t, bundle, d)
			}
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

// load puts handlers into a pipeline, alone or among its neighbours.
func load(text string, alone bool) (*tree.Bundle, []diag.Diagnostic) {
	indented := before + margin + strings.ReplaceAll(text, "\n", "\n"+margin) + "\n"
	files := []diag.File{{Name: "p.yaml", Data: []byte(indented)}}
	if !alone {
		files = append(files, diag.File{Name: "neighbours.yaml", Data: []byte(neighbours)})
	}
	return loadFiles(files...)
}

func loadFiles(files ...diag.File) (*tree.Bundle, []diag.Diagnostic) {
	return dsl.Load(files, dsl.Options{Language: addons.Language(), Types: addons.Types()})
}

// describe writes findings with their places in the text of the script.
func describe(found []diag.Diagnostic) string {
	var b strings.Builder
	for _, d := range found {
		line, column := d.Start.Line-strings.Count(before, "\n"), d.Start.Column-len(margin)
		fmt.Fprintf(&b, "%d:%d: %s %s: %s\n", line, column, d.Severity, d.Code, d.Message)
		if d.Hint != "" {
			fmt.Fprintf(&b, "     %s\n", d.Hint)
		}
	}
	if b.Len() == 0 {
		return "fine\n"
	}
	return b.String()
}

// call runs the first handler of a pipeline as the driver does.
func call(t *testing.T, b *tree.Bundle, d *datadriven.TestData) string {
	h := b.Pipeline("p").Stages[0].Handlers[0]
	typ := addons.HandlerTypes()[slices.IndexFunc(addons.HandlerTypes(), func(t engine.HandlerType) bool { return t.Name == h.Type })]
	state, _ := b.Pipeline("p").SharedState.Literal()
	data, err := h.Body.Eval(datum.Env{
		"event":        map[string]any{"id": "e-1", "payload": map[string]any{"id": "o/1?"}},
		"shared-state": state, "configs": map[string]any{"TARIFFS": []any{"econom"}},
	})
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	c := newCall(answering(&out, d))
	c.Bundle, c.Path = b, h.Path
	handler := typ.New()
	if err := typ.Spec.Decode(data, handler); err != nil {
		return err.Error() + "\n"
	}
	result, err := handler.Handle(t.Context(), c)
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
		if delay, ok := model.RetryDelay(err); ok {
			fmt.Fprintf(&out, "again after %v\n", delay)
		} else if model.IsPermanent(err) {
			fmt.Fprintln(&out, "never again")
		}
		return out.String()
	}
	describeResult(&out, result)
	return out.String()
}

func describeResult(w io.Writer, r model.Result) {
	response, _ := datum.FormatJSON(r.Response)
	fmt.Fprintf(w, "response: %s\n", response)
	if !r.Until.IsZero() {
		fmt.Fprintf(w, "until: %v from now\n", r.Until.Sub(now))
	}
	for _, e := range r.Emit {
		payload, _ := datum.FormatJSON(e.Payload)
		fmt.Fprintf(w, "event: type=%s source=%s id=%q key=%q payload=%s priority=%d tolerance=%v\n",
			e.Type, e.Source, e.ID, e.Key, payload, e.Priority, e.DelayTolerance)
		if !e.At.IsZero() {
			fmt.Fprintf(w, "due: %v from now\n", e.At.Sub(now))
		}
	}
}

// everyCall are the headers that all requests have; the scripts leave them out.
var everyCall = regexp.MustCompile(`(?m)^(Idempotency-Key|Traceparent|User-Agent|X-Procaas-\w+|Accept-Encoding|Content-Length): .*\r\n`)

// answering notes the request and answers as the script says.
func answering(out io.Writer, d *datadriven.TestData) transport {
	args := map[string]string{"status": "200", "type": "", "reply": "", "retry-after": ""}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ", ")
	}
	return func(r *http.Request) (*http.Response, error) {
		dump, err := httputil.DumpRequestOut(r, true)
		if err != nil {
			return nil, err
		}
		text := everyCall.ReplaceAllString(string(dump), "")
		fmt.Fprintln(out, strings.TrimSpace(strings.ReplaceAll(text, "\r", "")))
		var status int
		fmt.Sscan(args["status"], &status)
		resp := reply(r, status, args["type"], args["reply"])
		resp.Header.Set("Retry-After", args["retry-after"])
		return resp, nil
	}
}

// What the reference shows must be true. The types of one family, such as balancer.observe
// and balancer.decide, follow each other.
func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	families := map[string]string{}
	for _, h := range addons.HandlerTypes() {
		text := "- " + strings.ReplaceAll(handlers.Example(h.Type), "\n", "\n  ")
		if family, _, ok := strings.Cut(h.Name, "."); ok {
			text = families[family] + text
			families[family] = text + "\n"
		}
		bundle, found := load(text, false)
		if len(found) > 0 {
			t.Errorf("example of %s:\n%s\n%s", h.Name, text, describe(found))
			continue
		}
		all := bundle.Pipeline("p").Stages[0].Handlers
		if have := all[len(all)-1].Type; have != h.Name {
			t.Errorf("the example of %s is a %s", h.Name, have)
		}
	}
}
