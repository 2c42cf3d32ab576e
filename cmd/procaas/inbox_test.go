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
	"sync"
	"testing"
	"time"

	"procaas/cmd/procaas/internal/cli"
	"procaas/cmd/procaas/internal/serve"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/clock"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/store"
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

// TestInboxMoveSurvivesKill9 kills the node that moves all slots, while events come, and
// starts it again: each event has run once, in the order of its key, and the move can be
// made.
func TestInboxMoveSurvivesKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(stepping), 0o644); err != nil {
		t.Fatal(err)
	}
	c := &crashing{
		t: t, store: enginetest.Postgres(t), listen: freeAddress(t), pipelines: dir,
		cells: []string{"b=" + enginetest.Postgres(t)},
	}
	c.client = client.New("http://"+c.listen, "")
	server := c.start(ctx)
	const keys, events = 6, 60
	var sending sync.WaitGroup
	for k := range keys {
		sending.Go(func() {
			for n := range events {
				for ctx.Err() == nil {
					_, err := c.client.SubmitEvent(ctx, wire.Event{
						Type: "step", ID: fmt.Sprint(k, "-", n), Source: "test", Key: fmt.Sprint("key-", k),
						Payload: map[string]any{"n": n},
					})
					if err == nil {
						break
					}
					clock.Pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	const tasks = 400
	var batch []string
	for n := range tasks {
		batch = append(batch, fmt.Sprintf(`{"key": "k%d", "unique": "u%d"}`, n%50, n))
	}
	put := func() (kept int) {
		var reply *http.Response
		eventually(t, "the tasks to be taken in", func() (done bool) {
			var err error
			reply, err = http.Post("http://"+c.listen+"/v1/queues/work/tasks", "application/json",
				strings.NewReader("["+strings.Join(batch, ",")+"]"))
			return err == nil && reply.StatusCode == http.StatusAccepted
		})
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), `"kept"`)
	}
	put()
	order := wire.InboxMoveRequest{Slots: "0-4095", To: "b", Wait: wire.Duration(time.Minute)}
	eventually(t, "a move to begin", func() bool { _, err := c.client.MoveSlots(ctx, order); return err == nil })
	server.kill()
	server = c.start(ctx)
	slots := 0
	eventually(t, "all slots in b", func() bool {
		v, err := c.client.Inbox(ctx)
		if err != nil || len(v.Moves) == 0 || v.Moves[0].Ended == nil {
			return false // it is taken over after a while
		}
		if slots = v.Cells[1].Slots; slots < store.InboxSlots {
			_, _ = c.client.MoveSlots(ctx, order) // undone; asked for again until it is
		}
		return slots == store.InboxSlots
	})
	sending.Wait()
	var all []int
	for n := range events {
		all = append(all, n)
	}
	for k := range keys {
		var seen string
		eventually(t, "the runs of a key", func() bool {
			e, err := c.client.Entity(ctx, "account", fmt.Sprint("key-", k))
			seen = fmt.Sprint(e.SharedState["seen"])
			return err == nil && e.Waiting == 0
		})
		if seen != fmt.Sprint(all) {
			t.Errorf("key %d: want all events once and in order, have %s", k, seen)
		}
	}
	// Of the tasks, each is there once, with its name.
	if kept := put(); kept != tasks {
		t.Errorf("%d of the names of %d tasks are known", kept, tasks)
	}
	if all, err := c.client.Queues(ctx); err != nil || len(all) != 1 || all[0].Ready != tasks {
		t.Errorf("want %d tasks, have %+v, %v", tasks, all, err)
	}
	server.terminate()
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
		Store: enginetest.Postgres(t), Cells: []string{"b=" + enginetest.Postgres(t)}, Listen: "127.0.0.1:0", Name: "here", Migrate: true,
		MaxInFlight: 4, Lease: time.Minute, Drain: time.Second, MaxBody: "1MiB", LogFormat: "json", LogLevel: "error", Pipelines: []string{dir},
	}
	server, stop := runNode(t, f, cli.Streams{In: strings.NewReader(""), Out: &quiet, Err: &quiet})
	changing := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[0-9.]+ ms`)
	var shown strings.Builder
	for _, line := range []string{
		"inbox status", "inbox slots", "inbox slots key-1 key-2", "inbox move --slots 0-99,4095 --to b --dry-run",
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
	for _, store := range []string{f.Store, strings.TrimPrefix(f.Cells[0], "b=")} {
		var out bytes.Buffer
		code := Main(t.Context(), []string{"serve", "--store", store, "--pipelines", dir, "--listen", "127.0.0.1:0"},
			cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if code != 3 || !strings.Contains(out.String(), "inbox") {
			t.Errorf("want a database of an inbox refused with exit code 3, have %d: %s", code, out.String())
		}
	}
}
