package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
	"procaas/handlers/inbox"
	inboxremote "procaas/handlers/inbox/remote"
)

// stepping is a flow whose entities remember their events.
const stepping = `flows:
  - {id: account, key: !$ event.key, shared-state: {seen: []}}
pipelines:
  - id: step
    flow: account
    on: step
    stages:
      - id: a
        handlers:
          - {id: next, set: {seen: !$ "concat(shared-state.seen, [event.payload.n])"}}
`

// putTasks puts tasks into the queue mail, and tells how many names were known. Done tells that all were taken in.
func (c *crashing) putTasks(batch []string) (kept int, done bool) {
	reply, err := http.Post("http://"+c.listen+"/v1/queues/mail/tasks", "application/json",
		strings.NewReader("["+strings.Join(batch, ",")+"]"))
	if err != nil {
		return 0, false
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return strings.Count(string(text), `"kept"`), err == nil && reply.StatusCode == http.StatusAccepted
}

// TestInboxOfTwoServers works with the built binary on two servers: names are unique, results come, slots are spread over
// both. While the second one is away its keys stop, and those of the other do not.
func TestInboxOfTwoServers(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(stepping), 0o644); err != nil {
		t.Fatal(err)
	}
	second := enginetest.OwnPostgres(t)
	c := &crashing{t: t, store: enginetest.Postgres(t), listen: freeAddress(t), pipelines: dir, cells: []string{"b=" + second.URL}}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	defer server.terminate()
	const tasks, keys = 100, 16
	var batch []string
	for n := range tasks {
		batch = append(batch, fmt.Sprintf(`{"unique": "u%d"}`, n))
	}
	put := func(want int) {
		t.Helper()
		if kept, done := c.putTasks(batch); !done || kept != want {
			t.Errorf("want %d names known, have %d, all taken in: %v", want, kept, done)
		}
	}
	submit := func(k, n int) error {
		_, err := c.client.SubmitEvent(ctx, wire.Event{Type: "step", Key: fmt.Sprint("key-", k), Payload: map[string]any{"n": n}})
		return err
	}
	order := func(line string) {
		t.Helper()
		var out bytes.Buffer
		if code := Main(ctx, append(strings.Fields(line), "--server", "http://"+c.listen),
			cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}); code != 0 {
			t.Fatalf("%s: exit code %d: %s", line, code, &out)
		}
	}
	seen := func(want string) {
		for k := range keys {
			eventually(t, "the events of a key", func() bool {
				e, err := c.client.Entity(ctx, "account", fmt.Sprint("key-", k))
				return err == nil && e.Waiting == 0 && fmt.Sprint(e.SharedState["seen"]) == want
			})
		}
	}
	put(0)
	put(tasks)
	for k := range keys {
		if err := submit(k, 0); err != nil {
			t.Fatal(err)
		}
	}
	seen("[0]")
	order("inbox spread")
	put(tasks)
	v, err := inboxremote.ReadLoads(ctx, c.client)
	if err != nil {
		t.Fatal(err)
	}
	loads, of := map[string]int64{}, map[int]string{}
	for _, cell := range v.Cells {
		slots, err := inbox.ParseSlots(cell.Spans)
		if err != nil {
			t.Fatal(err)
		}
		for _, slot := range slots {
			loads[cell.Name], of[slot] = loads[cell.Name]+v.Loads[slot], cell.Name
		}
	}
	if off := loads["home"] - loads["b"]; off < -2 || off > 2 {
		t.Errorf("want the same load in both, have %v", loads)
	}
	if err := second.Halt(enginetest.StopImmediate); err != nil {
		t.Fatal(err)
	}
	away := 0
	for k := range keys {
		err := submit(k, 1)
		if here := of[store.InboxSlot(fmt.Sprint("key-", k))] == "home"; here != (err == nil) {
			t.Errorf("key %d, which is at home: %v: %v", k, here, err)
		} else if !here {
			away++
		}
	}
	if away == 0 || away == keys {
		t.Errorf("%d of %d keys were away; the test shows nothing", away, keys)
	}
	if kept, done := c.putTasks(batch); done || kept == 0 {
		t.Errorf("want some names refused, have all taken in: %v, %d known", done, kept)
	}
	if err := second.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for k := range keys {
		if of[store.InboxSlot(fmt.Sprint("key-", k))] == "b" {
			eventually(t, "the second server", func() bool { return submit(k, 1) == nil })
		}
	}
	eventually(t, "the tasks of the second server", func() bool { _, done := c.putTasks(batch); return done })
	put(tasks)
	order("inbox drain b")
	put(tasks)
	seen("[0 1]")
}

// TestInboxCommands keeps what the command inbox prints, and its exit codes.
func TestInboxCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(stepping), 0o644); err != nil {
		t.Fatal(err)
	}
	var quiet lockedBuffer
	f := serve.Flags{
		Store: enginetest.Postgres(t), Listen: "127.0.0.1:0", Name: "here", Migrate: true,
		MaxInFlight: 4, Lease: time.Minute, Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
	}
	cell := enginetest.Postgres(t)
	if err := f.Set("cell", "b="+cell); err != nil {
		t.Fatal(err)
	}
	server, stop := runNode(t, f, cli.Streams{In: strings.NewReader(""), Out: &quiet, Err: &quiet})
	changing := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9.]+ ms`)
	var shown strings.Builder
	for _, line := range []string{
		"inbox status", "inbox slots", "inbox slots key-1 key-2", "inbox spread --dry-run", "inbox move --slots 0-99,4095 --to b --dry-run",
		"inbox move --slots 0-99,4095 --to b --reason room",
		"inbox slots", "inbox slots key-1 --format json", "inbox move --slots 0-99 --to b", "inbox move --slots 0-99 --to c",
		"inbox move --slots 5000 --to b", "inbox move --slots 1",
		"inbox drain b --dry-run", "inbox drain b", "inbox drain c", "inbox slots --format xml", "audit --kind inbox --limit 1",
		"inbox remove home", "inbox remove c", "inbox move --slots 7 --to b", "inbox remove b", "inbox drain b", "inbox remove b --reason sold",
		"inbox remove b", "audit --kind inbox --limit 1",
	} {
		var out bytes.Buffer
		code := Main(t.Context(), append(strings.Fields(line), "--server", server), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		fmt.Fprintf(&shown, "$ procaas %s\n%sexit code %d\n\n", line, withoutBlanks(changing.ReplaceAllString(out.String(), "SO")), code)
	}
	golden(t, "inbox.golden", someTime.ReplaceAllString(shown.String(), "TIME"))
	reply, err := http.Get(server + "/console/inbox")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	for _, want := range []string{"<td>home<td>", "<td>b<td>", "room", "moved"} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("the page of the inbox: want %q, have %v\n%s", want, err, page)
		}
	}
	stop()
	// What works on one of the databases as if it were all of them is refused.
	for _, store := range []string{f.Store, cell} {
		var out bytes.Buffer
		code := Main(t.Context(), []string{"serve", "--store", store, "--pipelines", dir, "--listen", "127.0.0.1:0"},
			cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if code != 3 || !strings.Contains(out.String(), "inbox") {
			t.Errorf("want a database of an inbox refused with exit code 3, have %d: %s", code, out.String())
		}
	}
}
