package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/cmd/procaas/internal/source"
	"procaas/dsl"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/definitions"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

const failing = `pipelines:
  - id: work
    stages:
      - id: first
        handlers: [{id: ok, set: {}}]
      - id: last
        handlers: [{id: broken, fail: {message: no stock}}]
`

// An operated server and the commands that talk to it.
type operated struct {
	t      *testing.T
	dir    string
	server string
	client *client.Client
}

// operate serves the pipelines of a directory in this process.
func operateNode(t *testing.T, yaml string) *operated {
	t.Helper()
	o := &operated{t: t, dir: t.TempDir()}
	o.write(yaml)
	o.server = startNode(t, "sqlite:"+filepath.Join(t.TempDir(), "o.db"), o.dir)
	o.client = client.New(o.server, "")
	return o
}

// transcript runs commands for the node, and returns them with all that they print, except times.
func (o *operated) transcript(commands ...string) string {
	o.t.Helper()
	var have strings.Builder
	for _, line := range commands {
		var out bytes.Buffer
		code := Main(o.t.Context(), append(strings.Fields(line), "--server", o.server), cli.Streams{
			In: strings.NewReader(""), Out: &out,
			Err: &out,
		})
		fmt.Fprintf(&have, "$ procaas %s\n%s", line, someTime.ReplaceAllString(out.String(), "TIME"))
		if code != cli.ExitFine {
			fmt.Fprintf(&have, "[exit code %d]\n", code)
		}
		have.WriteString("\n")
	}
	return have.String()
}

// startNode runs a node in this process and returns its address.
func startNode(t *testing.T, store, dir string, change ...func(*serve.Flags)) string {
	t.Helper()
	address, _ := startNodeUntil(t, store, dir, change...)
	return address
}

// startNodeUntil runs a node in this process until stop, or the end of the test. It has joined when this returns: what joining
// writes into the audit comes before what the test does.
func startNodeUntil(t *testing.T, store, dir string, change ...func(*serve.Flags)) (address string, stop func()) {
	t.Helper()
	f := serve.Flags{
		Store: store, Listen: "127.0.0.1:0", Name: "here", Migrate: true, MaxInFlight: 64, Lease: 4 * time.Second,
		Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
	}
	for _, c := range change {
		c(&f)
	}
	address, stop = runNode(t, f, cli.Streams{In: strings.NewReader(""), Out: new(bytes.Buffer), Err: new(bytes.Buffer)})
	eventually(t, "the node", func() bool {
		resp, err := http.Get(address + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return address, stop
}

// runNode is [openNode] for tests that only need the address.
func runNode(t *testing.T, f serve.Flags, s cli.Streams) (url string, stop func()) {
	t.Helper()
	n, stop := openNode(t, f, s)
	return n.URL(), stop
}

// openNode runs a node with any flags. It stops at the end of the test, or when it
// is told to.
func openNode(t *testing.T, f serve.Flags, s cli.Streams) (n *serve.Node, stop func()) {
	t.Helper()
	bundle, err := source.Bundle(s, f.Pipelines, dsl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n, err = serve.Open(t.Context(), s, f, bundle)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return n, stop
}

func (o *operated) write(yaml string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, "a.yaml"), []byte(yaml), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

// command runs a command line and holds its exit code and its output.
func (o *operated) command(code int, want string, args ...string) string {
	o.t.Helper()
	var out, errs bytes.Buffer
	have := Main(o.t.Context(), append(args, "--server", o.server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if have != code || !regexp.MustCompile(want).MatchString(out.String()+errs.String()) {
		o.t.Errorf("procaas %s: want exit code %d and %q, have %d and\n%s%s", strings.Join(args, " "), code, want, have, out.String(),
			errs.String())
	}
	return out.String()
}

// wait waits until a number of runs have a status.
func (o *operated) wait(status model.Status, runs int) {
	o.t.Helper()
	ctx, cancel := patience.Context(o.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		page, err := o.client.Runs(ctx, store.RunFilter{Status: status})
		if err != nil {
			o.t.Fatal(err)
		}
		if len(page.Items) == runs {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			o.t.Fatalf("want %d runs %s, have %d", runs, status, len(page.Items))
		}
	}
}

func TestOperatorRedrivesRunsByWhatTheyHaveInCommon(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	for range 5 {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, 5)
	o.command(cli.ExitFine, `(?s)NODE.*here +true +0`, "nodes")
	o.command(cli.ExitFine, `(?s)5 +work +work/last/broken +other.*5 runs in all.*no stock`, "runs", "retry", "--handler", "work/last",
		"--dry-run")
	o.command(cli.ExitFine, `0 runs in all`, "runs", "retry", "--error-class", "5xx", "--dry-run")
	o.command(cli.ExitFine, `0 runs in all`, "runs", "retry", "--until", "1h", "--dry-run")
	o.wait(model.Failed, 5)
	page, err := o.client.Runs(t.Context(), store.RunFilter{Status: model.Failed})
	if err != nil {
		t.Fatal(err)
	}
	one := page.Items[0].ID
	o.command(cli.ExitFine, `^`+one+` failed\n$`, "runs", "retry", one, "--dry-run")
	o.command(cli.ExitFine, `^`+one+` failed\n$`, "runs", "cancel", one, "--dry-run")
	o.command(cli.ExitFine, `^`+one+` failed\n$`, "runs", "cancel", one, "--no-compensate", "--dry-run")
	o.command(cli.ExitUsage, `names of runs and conditions`, "runs", "cancel", one, "--status", "parked")
	o.wait(model.Failed, 5)
	o.command(cli.ExitFine, `(?s)^retried 2 runs\n  \S+\n  \S+\n.*now: each resumes.*check: procaas runs show \S+; retry --dry-run`, "runs", "retry", "--pipeline", "work", "--limit", "2", "--rate", "100/s")
	o.command(cli.ExitFine, `^retried \d runs`, "runs", "retry", "--error", "no stock", "--since", "1h", "--rate", "1000/s")
	o.wait(model.Failed, 5)
	o.command(cli.ExitFine, `(?s)RUN.*work/last/broken`, "runs", "list", "--error-class", "other")
	o.command(cli.ExitFine, `^cancelled 5 runs\n`, "runs", "cancel", "--handler", "work", "--reason", "no use")
	o.wait(model.Cancelled, 5)
	o.command(cli.ExitUsage, `needs ids of runs, or a condition`, "runs", "retry")
	o.command(cli.ExitUsage, `--since "soon": want a time`, "runs", "retry", "--since", "soon")
	o.command(cli.ExitUsage, `--rate "fast"`, "runs", "retry", "--key", "k", "--rate", "fast")
}

// A command over many runs that ends early says how far it came. The command that it prints does the rest, and each run once.
func TestOperatorGoesOnAfterAnEarlyEnd(t *testing.T) {
	t.Parallel()
	const runs = 7
	o := operateNode(t, failing)
	for range runs {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, runs)
	at, err := url.Parse(o.server)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"retry", "cancel"} {
		for _, interrupted := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			pages := 0
			node := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }}
			between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/runs/"+verb {
					pages++ // the first one is the preview
				}
				if pages != 3 {
					node.ServeHTTP(w, r)
					return
				}
				if interrupted {
					cancel()
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			var out, errs bytes.Buffer
			code := Main(ctx, []string{
				"runs", verb, "--pipeline", "work", "--error", "no stock", "--rate", "10/s", "--limit", "6", "--server", between.URL,
			}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
			cancel()
			between.Close()
			did := map[string]string{"retry": "retried", "cancel": "cancelled"}[verb]
			found := regexp.MustCompile(did + ` 2 runs, then: .*; to continue: procaas (runs .* --error='no stock' .*--cursor=\S+)`).
				FindStringSubmatch(errs.String())
			if code != cli.ExitBroken || found == nil || strings.Contains(errs.String(), "interrupted") != interrupted {
				t.Fatalf("%s: want exit code %d, two runs and the command that goes on, have %d and\n%s%s", verb, cli.ExitBroken, code,
					out.String(), errs.String())
			}
			command := strings.ReplaceAll(strings.ReplaceAll(found[1], "'no stock'", "stock"), between.URL, o.server)
			if verb == "retry" {
				o.wait(model.Failed, runs)
			}
			o.command(cli.ExitFine, `^`+did+` 4 runs\n`, strings.Fields(command)...)
			if verb == "cancel" {
				return // the rest is the same
			}
			o.wait(model.Failed, runs)
		}
	}
}

// People know what fails, and not always in which pipeline: a path may be shortened from the left wherever one is taken.
func TestPathsMayBeShortened(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
pipelines:
  - id: order
    stages:
      - id: reward
        handlers:
          - {id: vip, critical: false, fail: {message: no stock}}
          - {id: gold, fail: {message: no stock}}
      - {id: tell, handlers: [{id: user, set: {}}]}
      - {id: book, handlers: [{id: book, set: {}}]}
  - id: refund
    stages: [{id: tell, handlers: [{id: user, set: {}}]}]
  - id: trip
    stages:
      - {id: go, handlers: [{id: car, emit: {type: refund}, compensate: {emit: {type: refund}}}]}
      - {id: pay, handlers: [{id: pay, fail: {message: no money}}]}
`)
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "order"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `(?s)order/reward/gold.*reward/gold is order/reward/gold`, "runs", "list", "--handler", "reward/gold")
	o.command(cli.ExitFine, `1 run in all`, "runs", "retry", "--handler", "gold", "--dry-run")
	o.command(cli.ExitFine, `(?s)order/reward/vip: off.*reward/vip is order/reward/vip`, "switch", "off", "reward/vip")
	o.command(cli.ExitFine, `order/reward: 10/s`, "limit", "reward", "10/s")
	o.command(cli.ExitFine, `order/reward/vip: off.*; 50 % of runs`, "rollout", "vip", "50")
	o.command(cli.ExitFine, `(?s)order/reward/vip .*off`, "top", "reward/vip", "--once")
	o.command(cli.ExitFine, `control +order/reward/vip`, "audit", "--name", "reward/vip")
	o.command(cli.ExitFine, `0 runs in all`, "runs", "make-up", "--handler", "reward/vip", "--dry-run")
	o.command(cli.ExitFine, `order/book/book: hold`, "switch", "hold", "book")
	o.command(cli.ExitUsage, `tell/user may be any of order/tell/user, refund/tell/user: say which`, "switch", "hold", "tell/user")
	o.command(cli.ExitUsage, `there is no path "reward/silver"`, "runs", "list", "--handler", "reward/silver")

	o.command(cli.ExitUsage, `there is no pipeline, stage or handler trip/pay/pay/compensate`, "switch", "hold", "pay/compensate")
	o.command(cli.ExitFine, `(?s)trip/go/car/compensate: hold.*check: procaas switch list`, "switch", "hold", "car/compensate")
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "trip"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Parked, 1)
	o.command(cli.ExitFine, `held at trip/go/car/compensate`, "runs", "list", "--pipeline", "trip")
	o.command(cli.ExitFine, `trip/go/car/compensate: on`, "switch", "on", "trip/go/car/compensate")
	o.wait(model.Cancelled, 1)
}

// A refused call and a handler that was switched off need different decisions, so the list says which it was. A
// cancelled run shows why it was cancelled, and not where it had failed before.
func TestNoteSaysWhy(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
pipelines:
  - {id: gift, stages: [{id: last, handlers: [{id: send, critical: false, fail: {message: no such card}}]}]}
  - {id: work, stages: [{id: last, handlers: [{id: broken, fail: {message: no stock}}]}]}
`)
	submit := func(kind string) {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	submit("gift")
	o.wait(model.Succeeded, 1)
	o.command(cli.ExitFine, `off`, "switch", "off", "gift/last/send")
	submit("gift")
	o.wait(model.Succeeded, 2)
	o.command(cli.ExitFine, `(?s)switched off at gift/last/send.*failed: no such card`, "runs", "list", "--left-out", "send")
	o.command(cli.ExitFine, `(?s)gift/last/send: switched off .*gift/last/send: failed: no such card`, "runs", "list", "--left-out", "gift")
	o.command(cli.ExitFine, `(?s)succeeded \S+ failed: no such card\n.* succeeded \S+ switched off`, "runs", "make-up", "--handler", "send", "--dry-run")

	submit("work")
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `cancelled 1 run`, "runs", "cancel", "--pipeline", "work", "--reason", "no use")
	o.wait(model.Cancelled, 1)
	o.command(cli.ExitFine, `no use`, "runs", "list", "--status", "cancelled")
}

// A run that has ended is run again as a new one, and each of the two names the other.
func TestRunsAreRunAgainByCommand(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
pipelines:
  - id: order
    stages: [{id: book, handlers: [{id: book, set: {}}]}, {id: tell, handlers: [{id: user, set: {}}]}]
`)
	first, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "order", Key: "o-1"})
	if err != nil {
		t.Fatal(err)
	}
	o.wait(model.Succeeded, 1)
	o.command(cli.ExitFine, `(?s)would run again from stage tell: pipeline order, key o-1, version .*keeps the outcome of order/book/book`,
		"runs", "rerun", "o-1", "--from", "tell", "--dry-run")
	o.command(cli.ExitFindings, `pipeline order has no stage "tells"; did you mean tell\?`, "runs", "rerun", "o-1", "--from", "tells")
	o.command(cli.ExitFine, `now: each waits`, "runs", "rerun", "o-1", "--from", "tell", "--reason", "lost mails")
	o.wait(model.Succeeded, 2)
	o.command(cli.ExitFine, `rerun of  `+first.Run+` from stage tell \(by anonymous: lost mails\)`, "runs", "show", "o-1")
	o.command(cli.ExitFine, `rerun as  `, "runs", "show", first.Run)
	o.command(cli.ExitFine, `(?s)lost mails`, "audit", "--kind", "run")
}

// Runs are found, retried and cancelled by the labels of their events.
func TestRunsAreFoundByLabels(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	o.command(cli.ExitFine, `"run"`, "submit", "--type", "work", "--label", "city=berlin", "--label", "vip=yes")
	o.command(cli.ExitFine, `"run"`, "submit", "--type", "work")
	o.command(cli.ExitUsage, `--label: want labels such as`, "submit", "--type", "work", "--label", "berlin")
	o.wait(model.Failed, 2)
	o.command(cli.ExitFine, `(?s)^RUN[^\n]*\n[^\n]*\[city=berlin,vip=yes\]\n$`, "runs", "list", "--label", "city", "--label", "vip=yes")
	o.command(cli.ExitFine, `^RUN.*\n$`, "runs", "list", "--label", "city=bern")
	o.command(cli.ExitUsage, `--label: label "c ty": want a name`, "runs", "list", "--label", "c ty")
	o.command(cli.ExitFine, `1 run in all`, "runs", "retry", "--label", "city=berlin", "--dry-run")
	o.command(cli.ExitFine, `cancelled 1 run`, "runs", "cancel", "--label", "city=berlin")
	o.command(cli.ExitFine, `1 run in all`, "runs", "cancel", "--status", "failed", "--dry-run")
}

// An unknown name is an error with a suggestion: an empty list would look like good news.
func TestUnknownNamesAreTold(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
flows: [{id: taxi, key: !$ event.payload.id}]
pipelines:
  - {id: order, flow: taxi, stages: [{id: s, handlers: [{id: h, set: {}}]}]}
  - {id: thumbs, queue: {}, stages: [{id: s, handlers: [{id: h, set: {}}]}]}
`)
	o.command(cli.ExitUsage, `there is no flow "tax"; did you mean "?taxi`, "runs", "list", "--flow", "tax")
	o.command(cli.ExitUsage, `there is no flow "tax"`, "runs", "retry", "--flow", "tax", "--dry-run")
	o.command(cli.ExitUsage, `there is no pipeline "ordre".*did you mean "order"`, "runs", "list", "--pipeline", "ordre")
	o.command(cli.ExitFine, `^RUN.*
$`, "runs", "list", "--flow", "taxi", "--pipeline", "order")
	for _, verb := range []string{"pause", "drain", "cancel", "retry", "peek"} {
		o.command(cli.ExitUsage, `type "thmbs" has no task, no worker and no pipeline.*did you mean "thumbs"`, "queue", verb, "thmbs")
		o.command(cli.ExitFine, ``, "queue", verb, "thumbs")
	}
	o.command(cli.ExitUsage, `type "thmbs" has no task, no worker and no pipeline`, "queue", "move", "thmbs", "--to", "thumbs")
	o.command(cli.ExitFine, `(?s)thmbs is open.*warning: type "thmbs" has no task`, "queue", "resume", "thmbs")
	o.command(cli.ExitFine, `thmbs is paused`, "queue", "pause", "thmbs")
}

// A run that was accepted long before an outage fails in it.
func TestRunsAreFoundByWhenTheyFailed(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `work/last/broken`, "runs", "list", "--failed-since", "1h", "--since", "1h")
	o.command(cli.ExitFine, `^RUN.*
$`, "runs", "list", "--failed-since", "2100-01-01T00:00:00Z")
	o.command(cli.ExitFine, `1 run in all`, "runs", "retry", "--failed-since", "1h", "--dry-run")
	o.command(cli.ExitFine, `(?s)"preview": true,\s+"total": 1,.*"failed_handler": "work/last/broken"`, "runs", "retry", "--failed-since", "1h", "--dry-run",
		"--format", "json")
	o.command(cli.ExitFine, `^\{\s+"done": 0,\s+"moved_on": 0,\s+"of_tasks": 0,\s+"runs": \[\]\s+\}\s+$`, "runs", "cancel", "--status", "parked", "--format", "json")
	o.command(cli.ExitFine, `0 runs in all`, "runs", "retry", "--failed-since", "2100-01-01T00:00:00Z", "--dry-run")
	o.command(cli.ExitUsage, `--failed-since "soon": want a time`, "runs", "list", "--failed-since", "soon")
}

// Whoever is on call has the number of an order, and not the id of a run.
func TestRunsAreFoundByTheirKey(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
flows: [{id: f, key: !$ event.payload.id}, {id: g, key: !$ event.payload.id, on-failure: skip}]
pipelines:
  - id: work
    flow: f
    stages:
      - {id: first, handlers: [{id: ok, set: {}}]}
      - {id: last, handlers: [{id: broken, fail: {message: no stock}}]}
  - {id: other, flow: g, stages: [{id: s, handlers: [{id: h, fail: {message: no use}}]}]}
`)
	for _, e := range []wire.Event{
		{Type: "work", Payload: map[string]any{"id": "o-1"}},
		{Type: "other", Payload: map[string]any{"id": "o-2"}},
	} {
		if _, err := o.client.SubmitEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, 2)
	o.command(cli.ExitFine, `(?s)key +o-1\n.*no stock`, "runs", "show", "o-1")
	o.command(cli.ExitFine, `work/first/ok in run .*succeeded`, "explain", "o-1", "ok")
	o.command(cli.ExitUsage, `there is no run with the id or the key "o-3"; procaas runs list`, "runs", "show", "o-3")
	o.command(cli.ExitUsage, `there is no run with the id or the key "06ct7s3f`, "runs", "show", "06ct7s3fdpu7n78ad8u1obqe24")
	o.command(cli.ExitFine, `^(\S+) (waiting|failed|running)\nnow: each resumes.*\ncheck: procaas runs show \S+;`, "runs", "retry", "o-1")
	o.wait(model.Failed, 2)
	o.command(cli.ExitFine, `^\S+ cancelled\nnow: .*\ncheck: procaas runs show `, "runs", "cancel", "o-1")
	o.command(cli.ExitFindings, `run o-1: run \S+ has the status cancelled since .*: retry takes a run that failed`, "runs", "retry", "o-1")
	o.command(cli.ExitFine, `retried 0 runs\nthe choice has 1 run: 1 cancelled; retry takes runs that failed`, "runs", "retry", "--key", "o-1")
	o.command(cli.ExitFine, `0 runs in all\nthe choice has 1 run without the conditions on failures: 1 cancelled; retry takes`,
		"runs", "retry", "--key", "o-1", "--error-class", "5xx", "--dry-run")
	o.command(cli.ExitFine, `cancelled 0 runs\nthere is no run of this choice in any status; procaas runs list`, "runs", "cancel", "--key", "o-3")
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "other", Payload: map[string]any{"id": "o-2"}}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 2) // o-1 is cancelled
	o.command(cli.ExitUsage, `the key "o-2" has several such runs; give the id of one: \S+ \(other, failed\), `, "runs", "retry", "o-2")
}

// Events that wait for a pipeline which a reload would take away are cancelled only when the
// operator says so, by the command or over HTTP.
func TestReloadGivesEventsUpWhenTold(t *testing.T) {
	t.Parallel()
	const pipeline = "  - {id: %s, stages: [{id: s, handlers: [{id: h, fail: {message: no}}]}]}\n"
	serving := func(ids ...string) string {
		text := "pipelines:\n"
		for _, id := range ids {
			text += fmt.Sprintf(pipeline, id)
		}
		return text
	}
	o := operateNode(t, serving("stays", "b", "c"))
	runs := map[string]string{}
	for _, id := range []string{"b", "c"} {
		receipt, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: id, At: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		runs[id] = receipt.Run
	}
	given := func(id, reason string) {
		t.Helper()
		v, err := o.client.Run(t.Context(), runs[id])
		if err != nil || v.Status != model.Cancelled || !strings.Contains(v.Reason, reason) {
			t.Errorf("want the event of %s given up: %s, have %+v, %v", id, reason, v, err)
		}
	}
	waits := func(id string) {
		t.Helper()
		if v, err := o.client.Run(t.Context(), runs[id]); err != nil || v.Status != model.Waiting {
			t.Errorf("want the event of %s to wait, have %+v, %v", id, v, err)
		}
	}

	o.write(serving("stays", "c"))
	o.command(cli.ExitFindings, `(?s)1 in all \(b: 1\).*--drop`, "reload")
	o.command(cli.ExitFindings, `"code": "events_wait"`, "reload", "--format", "json")
	waits("b")
	o.command(cli.ExitFine, `- pipeline b`, "reload", "--drop", "--reason", "b is history")
	given("b", "b is history")
	waits("c")

	o.write(serving("stays"))
	post := func(body string) (int, string) {
		t.Helper()
		reply, err := http.Post(o.server+"/admin/v1/reload", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(text)
	}
	for _, body := range []string{`{"reason": "c too"}`, `{"reason": "c too", "drop": false}`} {
		if status, text := post(body); status != http.StatusConflict || !strings.Contains(text, `"events_wait"`) ||
			!strings.Contains(text, "c: 1") {
			t.Errorf("%s: want a refusal with the number, have %d %s", body, status, text)
		}
	}
	waits("c")
	if status, text := post(`{"reason": "c too", "drop": true}`); status != http.StatusOK || !strings.Contains(text, `"removed"`) {
		t.Errorf("want the reload, have %d %s", status, text)
	}
	given("c", "c too")
}

func TestOperatorReloadsPipelines(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `nothing has changed`, "reload")
	o.write(strings.Replace(failing, "stages:", "stges:", 1))
	o.command(cli.ExitFindings, `a.yaml:3:\d+: error\[PC\d+\].*stges`, "reload")
	o.command(cli.ExitFindings, `"line": 3`, "reload", "--format", "json")
	o.command(cli.ExitFine, `work/last/broken`, "runs", "list")
	o.write("")
	o.command(cli.ExitFindings, `^procaas: no pipelines in \S+a.yaml \(empty\), though the server has work; want at least one.* the pipelines before stay\n$`, "reload")
	o.command(cli.ExitFindings, `"code": "invalid_pipelines"`, "reload", "--format", "json")
	o.write(failing)
	o.command(cli.ExitFine, `nothing has changed`, "reload")

	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "a.yaml"), []byte(failing), 0o644); err != nil {
		t.Fatal(err)
	}
	o.write(strings.Replace(failing, "no stock", "none left", 1))
	o.command(cli.ExitFindings, `(?s)fail.message: "no stock" -> "none left".*1 compatible, 0 pinned`, "diff", old, o.dir)
	o.write(strings.Replace(failing, "id: broken", "id: renamed", 1))
	o.command(cli.ExitFindings, `(?s)is pinned:.*work/last/broken.*0 compatible, 1 pinned`, "diff", old, o.dir)
	o.command(cli.ExitFine, `(?s)before .*now .*\+ handler work/last/renamed.*- handler work/last/broken`, "reload", "--reason",
		"a better name")
}

func TestOperatorRollsBack(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	versions := func() []definitions.Version {
		all, err := o.client.Versions(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	first := versions()[0].Version
	o.command(cli.ExitUsage, `the audit names no version before the current one`, "rollback")
	o.write(strings.Replace(failing, "no stock", "none left", 1))
	o.command(cli.ExitFine, `none left`, "reload", "--reason", "better words")
	second := versions()[0].Version
	o.command(cli.ExitFine, `(?s)VERSION.*`+second[:12]+` +current .* 0 +~ handler work/last/broken +better words\n`+first[:12]+` +- .* 1 `, "versions")
	o.command(cli.ExitFine, `"state": "current"`, "versions", "--format", "json")
	o.command(cli.ExitFine, `(?s)state +current.*before +`+first+`.*fail.message: "no stock" -> "none left"`, "versions", "show", second[:4])
	o.command(cli.ExitFine, `message: no stock`, "versions", "show", first, "--files")
	o.command(cli.ExitFindings, `fail.message: "none left" -> "no stock"`, "versions", "diff", second, first)
	o.command(cli.ExitFine, ``, "versions", "diff", first, first)
	o.command(cli.ExitUsage, `there is no version "beefbeef"; want at least 4 digits`, "rollback", "beefbeef")
	o.command(cli.ExitUsage, `there is no version`, "versions", "show", first[:3])

	o.write("not even: [yaml") // the way back needs no files
	o.command(cli.ExitFine, `(?s)before `+second+`\nnow    `+first+`\n~ handler work/last/broken`, "rollback", "--reason", "the old words")
	stays := `(?s)now: .*; 1 failed and 0 unfinished runs stay on ` + first[:12] + `\ncheck: procaas runs list --version ` + first[:12] +
		`\nthen: procaas runs migrate --version ` + first[:12] + ` --dry-run;.* runs retry --failed-since \S+Z --dry-run, which leaves out what failed before ` + first[:12] + `\nundo: procaas release rollback ` + first[:12]
	if now := versions(); now[0].Version != first || now[0].Reason == "the old words" || now[0].Later != "the old words" || now[0].Runs != 1 {
		t.Errorf("have %+v", now)
	}
	o.command(cli.ExitFine, first[:12]+` +current.* later by anonymous: the old words`, "versions")
	o.command(cli.ExitFine, stays, "rollback", second)
	if now := versions(); now[0].Version != second || now[0].Reason != "better words" || now[0].Before != first {
		t.Errorf("want the first reason of the version, have %+v", now)
	}
}

func TestOperatorMigratesRuns(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	for range 3 {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Failed, 3)
	page, err := o.client.Runs(t.Context(), store.RunFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	id, old := page.Items[0].ID, page.Items[0].Bundle
	o.command(cli.ExitFine, `^`+id+` failed\ncheck: procaas runs show `, "runs", "migrate", id)
	o.command(cli.ExitFine, `^migrated 0 runs, 0 pinned\n$`, "runs", "migrate", "--pipeline", "work")

	o.write(strings.Replace(failing, "id: ok", "id: renamed", 1))
	o.command(cli.ExitFine, `work/first/renamed`, "reload")
	o.command(cli.ExitFindings, `(?s)`+id+` of work is pinned: .*work/first/ok.*0 compatible, 1 pinned`, "runs", "migrate", id, "--dry-run")
	o.command(cli.ExitFindings, `(?s)`+id+`: .*does not fit the present definition: .*work/first/ok`, "runs", "migrate", id)
	o.command(cli.ExitFindings, `(?s)is pinned: .*migrated 0 runs, 3 pinned\n$`, "runs", "migrate", "--pipeline", "work")

	o.write(strings.Replace(failing, "fail: {message: no stock}", "set: {}", 1))
	o.command(cli.ExitFine, `work/last/broken`, "reload")
	o.command(cli.ExitFine, `(?s)NODE.*PIPELINES.*here +true +0 .*B +[0-9a-f]{12} `, "nodes")
	o.command(cli.ExitFine, `^  run `+id+` of work fits: failed\n1 compatible, 0 pinned\n$`, "runs", "migrate", id, "--dry-run")
	o.command(cli.ExitFine, `^(  run \S+ of work fits: failed\n){3}3 compatible, 0 pinned\n$`, "runs", "migrate", "--handler", "work/last", "--dry-run")
	o.command(cli.ExitFine, `(?s)`+id+`.*3 compatible, 0 pinned\n$`, "runs", "migrate", "--version", old[:4], "--dry-run")
	o.command(cli.ExitUsage, `there is no version "beefbeef"`, "runs", "migrate", "--version", "beefbeef", "--dry-run")
	if v, err := o.client.Run(t.Context(), id); err != nil || v.Bundle != old {
		t.Errorf("want a dry run to change nothing, have %+v, %v", v, err)
	}
	o.command(cli.ExitFine, `^migrated 3 runs, 0 pinned\n$`, "runs", "migrate", "--handler", "work/last", "--reason",
		"stock is no matter")
	o.command(cli.ExitFine, `^RUN +PIPELINE.*\n$`, "runs", "list", "--version", old[:4])
	o.command(cli.ExitFine, `^retried 3 runs\n`, "runs", "retry", "--pipeline", "work")
	o.wait(model.Succeeded, 3)
	o.command(cli.ExitFindings, `has the status succeeded since`, "runs", "migrate", id)
	o.command(cli.ExitUsage, `migrate needs ids of runs, or a condition`, "runs", "migrate")
}

// A run that stands still says what it waits for: the hold and who set it, or until when its wait lasts.
func TestRunsSayWhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	o := operateNode(t, `
flows: [{id: f, key: !$ event.payload.id}]
pipelines:
  - {id: held, flow: f, stages: [{id: s, handlers: [{id: h, critical: false, wait: {for: 1ms}}]}]}
  - {id: slow, flow: f, stages: [{id: s, handlers: [{id: h, wait: {for: 1h}}]}]}
  - {id: asks, flow: f, stages: [{id: s, handlers: [{id: h, await: {event: answer, timeout: 1h}}]}]}
`)
	o.command(cli.ExitFine, "", "switch", "hold", "held/s")
	for _, pipeline := range []string{"held", "slow", "asks"} {
		if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: pipeline, Payload: map[string]any{"id": pipeline}}); err != nil {
			t.Fatal(err)
		}
	}
	o.wait(model.Parked, 3)
	const at = `\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`
	o.command(cli.ExitFine, `held/s/h: held at held/s until \S+ by anonymous\n`, "runs", "list", "--key", "held")
	o.command(cli.ExitFine, `slow/s/h waits until `+at+`\n`, "runs", "list", "--key", "slow")
	o.command(cli.ExitFine, `h waiting until `+at+`, as its wait says\n`, "runs", "show", "slow")
	o.command(cli.ExitFine, `asks/s/h until `+at+`: awaits answer\n`, "runs", "list", "--key", "asks")
	o.command(cli.ExitFine, `h waiting until `+at+`, awaits answer\n`, "runs", "show", "asks")
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "answer", Payload: map[string]any{"id": "asks"}}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Succeeded, 2)
	o.command(cli.ExitFine, `(?m)^\S+ +- +asks +succeeded .* taken by run \S+ at asks/s/h$`, "runs", "list", "--key", "asks")
}

// A pipeline or a path that does not exist is an error, not a list without runs; one that has runs is none.
func TestRunsOfWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	o := operateNode(t, failing)
	if _, err := o.client.SubmitEvent(t.Context(), wire.Event{Type: "work"}); err != nil {
		t.Fatal(err)
	}
	o.wait(model.Failed, 1)
	o.command(cli.ExitFine, `(?m)^RUN .* VERSION .*\n\S+ +work +\S+ +failed +[0-9a-f]{12} `, "runs", "list", "--error", "no stock",
		"--since", "1h")
	o.command(cli.ExitFine, `^RUN .*\n$`, "runs", "list", "--pipeline", "work", "--until", "1h")
	o.command(cli.ExitUsage, `there is no pipeline "wrok", and no run of one; did you mean "work"\?`, "runs", "list", "--pipeline", "wrok")
	o.command(cli.ExitUsage, `there is no pipeline "nope", and no run of one; procaas top lists`, "runs", "cancel", "--pipeline", "nope")
	o.command(cli.ExitUsage, `there is no path "work/last/brokn", .* did you mean "work/last/broken"`, "runs", "retry", "--handler",
		"work/last/brokn")
	o.command(cli.ExitUsage, `there is no path "work/lats/ok", `, "runs", "make-up", "--handler", "work/lats/ok", "--dry-run")
	o.command(cli.ExitUsage, `there is no pipeline "wrok"`, "runs", "migrate", "--pipeline", "wrok", "--dry-run")
	o.command(cli.ExitFine, `^1 run in all|1 run in all\n`, "runs", "retry", "--pipeline", "work", "--dry-run")

	o.write("pipelines: [{id: other, stages: [{id: s, handlers: [{id: h, wait: {for: 1ms}}]}]}]")
	o.command(cli.ExitFine, "", "reload")
	o.command(cli.ExitFine, `no stock|work/last/broken`, "runs", "list", "--pipeline", "work")
	o.command(cli.ExitFine, `^RUN .*\n$`, "runs", "list", "--pipeline", "work", "--status", "succeeded")
}
