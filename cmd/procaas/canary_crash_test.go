package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/canary"
	"procaas/engine/clock"
	"procaas/engine/diff"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
	"procaas/engine/store"
)

const canaried = `
flows: [{id: order, key: !$ event.payload.id}]
services: [{id: s, url: URL}]
pipelines:
  - id: work
    flow: order
    stages: [{id: a, handlers: [{id: pay, retry: {attempts: 1}, request: {service: s, path: /old, method: POST}}]}]
`

// A rollout is nodes that try a new version under events of many keys.
type rollout struct {
	*testing.T
	ctx   context.Context //nolint:containedctx // as long as the test
	dir   string
	nodes []*crashing
	sent  int
	hook  *hookStub // hears alerts of all nodes
	paths sync.Map  // that the service was called at, and of calls in the shadow "shadow "+path
}

// newRollout starts nodes whose new version calls a path.
func newRollout(t *testing.T, path string, db string, nodes int) (*rollout, []*child) {
	ctx, cancel := patience.Context(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	r := &rollout{T: t, ctx: ctx, dir: t.TempDir(), hook: &hookStub{}}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := req.URL.Path
		if req.Header.Get("X-Procaas-Shadow") != "" {
			path = "shadow " + path
		}
		r.paths.Store(path, true)
		if req.URL.Path == "/bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(service.Close)
	hooks := httptest.NewServer(r.hook)
	t.Cleanup(hooks.Close)
	r.write(strings.ReplaceAll(canaried, "URL", service.URL))
	var children []*child
	for range nodes {
		c := &crashing{t: t, store: db, listen: freeAddress(t), pipelines: r.dir, flags: []string{"--alert-webhook", hooks.URL}}
		c.client = client.New("http://"+c.listen, "")
		r.nodes, children = append(r.nodes, c), append(children, c.start(ctx))
	}
	r.write(strings.NewReplacer("URL", service.URL, "/old", path).Replace(canaried))
	return r, children
}

// reload reloads the pipelines of a node. One that has just started does not know yet which version is current, says so, and is
// asked again.
func (r *rollout) reload(at *crashing, how wire.Reload) (d diff.Diff, err error) {
	r.Helper()
	patience.Until(r, "a node that knows which version is current", func() bool {
		d, err = at.client.Reload(r.ctx, how)
		return err == nil || !strings.Contains(err.Error(), "has just started")
	})
	return d, err
}

func (r *rollout) write(text string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "p.yaml"), []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// submit sends an event of each of so many new keys to a node, and returns the keys.
func (r *rollout) submit(at *crashing, keys int) (sent []string) {
	r.Helper()
	for range keys {
		r.sent++
		key := fmt.Sprint("k", r.sent)
		if _, err := at.client.SubmitEvent(r.ctx, wire.Event{Type: "work", Payload: map[string]any{"id": key}}); err != nil {
			r.Fatal(err)
		}
		sent = append(sent, key)
	}
	return sent
}

// until sends events to a node until the canary has come so far there.
func (r *rollout) until(at *crashing, what string, done func(canary.View) bool) canary.View {
	r.Helper()
	for {
		v, err := at.client.Canary(r.ctx)
		if err == nil && done(v) {
			return v
		}
		if r.ctx.Err() != nil {
			r.Fatalf("%s: have %+v, %v", what, v, err)
		}
		r.submit(at, 20)
		clock.Pause(r.ctx, 20*time.Millisecond) // nodes need the processor, too
	}
}

// versions returns the version of the first run of each key, once all runs have ended.
func (r *rollout) versions(at *crashing, keys []string) map[string]string {
	r.Helper()
	out := map[string]string{}
	for _, key := range keys {
		for out[key] == "" {
			page, err := at.client.Runs(r.ctx, store.RunFilter{Key: key, Oldest: true, Limit: 1})
			if err != nil {
				r.Fatal(err)
			}
			if len(page.Items) > 0 && page.Items[0].Status.Ended() {
				out[key] = page.Items[0].Bundle
			} else if !clock.Pause(r.ctx, 10*time.Millisecond) {
				r.Fatalf("the run of %s does not end", key)
			}
		}
	}
	return out
}

// TestCanarySurvivesKill9 kills the node that began a canary, and decides about it. The other one continues with the same
// keys on the same versions. The dead one comes back with the new files, and serves the old version. Then both try the version
// again, which is judged: it is rolled back by itself, neither begins another run with it, and an alert says why.
func TestCanarySurvivesKill9(t *testing.T) {
	t.Parallel()
	r, children := newRollout(t, "/bad", enginetest.MigratedPostgres(t), 2)
	one, two := r.nodes[0], r.nodes[1]
	d, err := r.reload(one, wire.Reload{Canary: 30, Runs: 10_000, Ignore: []string{canary.Errors, canary.Failures}})
	if err != nil {
		t.Fatal(err)
	}
	keys := r.submit(one, 40)
	before := r.versions(one, keys)
	children[0].kill()
	v := r.until(two, "the trial of the dead node", func(v canary.View) bool { return v.Phase == canary.Running && v.Percent == 30 })
	tried := 0
	for key, version := range before {
		if want := model.VersionFor(model.Split{Old: v.Old, New: v.New, Percent: 30}.String(), "order", key); version != want {
			t.Errorf("key %s ran on %.8s, want %.8s", key, version, want)
		}
		if version == d.New {
			tried++
		}
	}
	if tried == 0 || tried == len(keys) {
		t.Fatalf("%d of %d keys are on the new version: the test shows nothing", tried, len(keys))
	}
	if _, err := two.client.RollBack(r.ctx, wire.Rollback{Reason: "look again"}); err != nil {
		t.Fatal(err)
	}

	children[0] = one.start(r.ctx)
	if _, err := r.reload(two, wire.Reload{Canary: 30}); err != nil {
		t.Fatal(err)
	}
	v = r.until(two, "the end of the trial", func(v canary.View) bool { return v.Phase == canary.RolledBack })
	if !strings.Contains(v.Why, "errors of work/a/pay: ") {
		t.Errorf("have %+v", v)
	}
	eventually(t, "an alert with the reason", func() bool { return r.hook.has("firing CanaryRolledBack ") && r.hook.tells(v.Why) })
	for _, node := range r.nodes {
		r.until(node, "both nodes hear of it", func(v canary.View) bool { return v.Phase == canary.RolledBack })
		for key, version := range r.versions(node, r.submit(node, 20)) {
			if version != d.Old {
				t.Errorf("key %s ran on %.8s after the rollback", key, version)
			}
		}
	}
	children[0].terminate()
	children[1].terminate()
}

// TestKeysNeverGoBackToTheOldVersion sends events of the same keys to both nodes while shares grow. A key begins its runs with
// the old version, and with the new one from some run on, though nodes hear of a share at different times. After the
// rollback, none begins with the new one.
func TestKeysNeverGoBackToTheOldVersion(t *testing.T) {
	t.Parallel()
	r, children := newRollout(t, "/new", enginetest.MigratedPostgres(t), 2)
	one := r.nodes[0]
	d, err := r.reload(one, wire.Reload{Canary: 5, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	const keys, rounds = 20, 6
	send := func() {
		for round := range rounds {
			for k := range keys {
				ev := wire.Event{Type: "work", Payload: map[string]any{"id": fmt.Sprint("same-", k)}}
				if _, err := r.nodes[(round+k)%2].client.SubmitEvent(r.ctx, ev); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	send()
	for _, share := range []float64{40, 80} {
		if _, err := one.client.Promote(r.ctx, wire.Promotion{Percent: share, Hold: true}); err != nil {
			t.Fatal(err)
		}
		send()
	}
	began, turned := map[string]int{}, 0
	for k := range keys {
		key, now := fmt.Sprint("same-", k), d.Old
		for i, version := range r.history(one, key, 3*rounds) {
			if version != now && now == d.New {
				t.Errorf("run %d of %s began with the old version after the new one", i, key)
			}
			if now = version; version == d.New {
				began[key]++
			}
		}
		if n := began[key]; n > 0 && n < 3*rounds {
			turned++
		}
	}
	if turned == 0 {
		t.Fatal("no key has turned: the test shows nothing")
	}
	if _, err := one.client.RollBack(r.ctx, wire.Rollback{}); err != nil {
		t.Fatal(err)
	}
	send()
	for k := range keys {
		if key := fmt.Sprint("same-", k); slices.Contains(r.history(one, key, 4*rounds)[3*rounds:], d.New) {
			t.Errorf("a run of %s began with the new version after the rollback", key)
		}
	}
	children[0].terminate()
	children[1].terminate()
}

// history returns the versions of all runs of a key, in order, once there are so many and they have ended.
func (r *rollout) history(at *crashing, key string, runs int) (versions []string) {
	r.Helper()
	for {
		page, err := at.client.Runs(r.ctx, store.RunFilter{Key: key, Limit: 100}) // the newest one comes first
		if err != nil {
			r.Fatal(err)
		}
		versions = nil
		for _, run := range page.Items {
			if run.Status.Ended() {
				versions = append(versions, run.Bundle)
			}
		}
		if len(versions) == runs {
			slices.Reverse(versions)
			return versions
		}
		if !clock.Pause(r.ctx, 10*time.Millisecond) {
			r.Fatalf("%d of %d runs of %s have ended", len(versions), runs, key)
		}
	}
}

// startDemo runs the demo in this process. end stops it, and wants its success.
func startDemo(t *testing.T, flags string) (told *lockedBuffer, end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	told = &lockedBuffer{}
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, strings.Fields("demo --listen 127.0.0.1:0 --incident-after 1ms "+flags),
			cli.Streams{In: strings.NewReader(""), Out: told, Err: told})
	}()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(told.text())
		}
	})
	return told, func() {
		t.Helper()
		stop()
		if c := <-code; c != 0 {
			t.Errorf("want exit code 0, have %d:\n%s", c, told.text())
		}
	}
}

// TestDemoRollsABadVersionBack plays the incident of the demo.
func TestDemoRollsABadVersionBack(t *testing.T) {
	t.Parallel()
	told, end := startDemo(t, "--rate 30 --incident bad-version")
	// Calls that fail are also called again, and make runs longer: which of these is certain first depends on the machine.
	eventually(t, "the rollback", func() bool { return strings.Contains(told.text(), "is rolled back: ") })
	if text := told.text(); !strings.Contains(text, "20 % of the orders use version") {
		t.Errorf("have\n%s", text)
	}
	end()
}

// TestDemoBoundsASlowService plays the incident of the demo.
func TestDemoBoundsASlowService(t *testing.T) {
	t.Parallel()
	told, end := startDemo(t, "--rate 5 --incident slow-service --incident-for 1h")
	eventually(t, "the proof that it is mended", func() bool { return strings.Contains(told.text(), "mended: $ procaas top") })
	text := told.text()
	for _, want := range []string{
		"seen: $ procaas top new-order-created", "named: $ procaas runs slow new-order-created --since 1m", "target 1s; new-order-created/perform-notifications/notify-",
		"bounded: $ procaas deadline new-order-created/perform-notifications 300ms --for 1h", "orders kept the target of 1s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q", want)
		}
	}
	end()
}

// TestCanaryIsPromoted lets a version that is as good become current by its schedule, while its only node is killed at
// each share.
func TestCanaryIsPromoted(t *testing.T) {
	t.Parallel()
	r, children := newRollout(t, "/new", "sqlite:"+filepath.Join(t.TempDir(), "canary.db"), 1)
	node := r.nodes[0]
	d, err := r.reload(node, wire.Reload{Canary: 10, Step: wire.Duration(time.Second), Runs: 10, Ignore: []string{canary.Latency}})
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []float64{25, 50} {
		r.until(node, "the next share", func(v canary.View) bool { return v.Percent >= share })
		children[0].kill()
		children[0] = node.start(r.ctx)
	}
	r.until(node, "the end", func(v canary.View) bool { return v.Phase == canary.Promoted })
	for key, version := range r.versions(node, r.submit(node, 10)) {
		if version != d.New {
			t.Errorf("key %s ran on %.8s after the promotion", key, version)
		}
	}
	versions, err := node.client.Versions(r.ctx, 10)
	if err != nil || versions[0].Version != d.New || versions[0].Before != d.Old {
		t.Errorf("have %+v, %v", versions, err)
	}
	children[0].terminate()
}

// TestShadowSurvivesKill9 kills the node that put a version in the shadow, in the middle of its replays. The other one goes on,
// and the dead one comes back with the new files and replays, too. No run uses the version, and nobody calls its services,
// until it is promoted.
func TestShadowSurvivesKill9(t *testing.T) {
	t.Parallel()
	r, children := newRollout(t, "/new", enginetest.MigratedPostgres(t), 2)
	one, two := r.nodes[0], r.nodes[1]
	d, err := r.reload(one, wire.Reload{Shadow: 100})
	if err != nil {
		t.Fatal(err)
	}
	compared := func(least int) func(canary.View) bool {
		return func(v canary.View) bool {
			if n := v.Shadow.Total(); n.Same > 0 {
				t.Fatalf("want that all runs differ, since they call another path; have %s", n.Text())
			}
			return v.Phase == canary.InShadow && v.Shadow.Total().Different >= least
		}
	}
	for range 3 {
		before := r.until(two, "replays", compared(1)).Shadow.Total().Different
		keys := r.submit(one, 100)
		children[0].kill()
		for key, version := range r.versions(two, keys) {
			if version != d.Old {
				t.Errorf("key %s ran on %.8s, which is in the shadow", key, version)
			}
		}
		r.until(two, "replays of the other node", compared(before+1))
		children[0] = one.start(r.ctx)
		r.until(one, "the node that came back", compared(before+2))
	}
	v, err := two.client.Canary(r.ctx)
	if err != nil || v.New != d.New || v.Shadow.Differences[0].Was == "" || len(v.Shadow.Differences[0].Examples) == 0 {
		t.Errorf("have %+v, %v", v, err)
	}
	for _, path := range []string{"/new", "shadow /new", "shadow /old"} {
		if _, called := r.paths.Load(path); called {
			t.Errorf("a replay has called %s", path)
		}
	}
	if _, err := two.client.Promote(r.ctx, wire.Promotion{}); err != nil {
		t.Fatal(err)
	}
	r.until(one, "the end", func(v canary.View) bool { return v.Phase == canary.Promoted })
	for key, version := range r.versions(two, r.submit(one, 10)) {
		if version != d.New {
			t.Errorf("key %s ran on %.8s after the promotion", key, version)
		}
	}
	children[0].terminate()
	children[1].terminate()
}
