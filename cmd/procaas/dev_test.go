package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"procaas/cmd/procaas/internal/source"
	"procaas/engine/api/cli"
	"procaas/engine/api/client"
	"procaas/engine/api/wire"
	"procaas/engine/model"
	"procaas/engine/store"
)

// A devServer is procaas dev at work in this process.
type devServer struct {
	url      string
	out, log lockedBuffer
	stop     func() // and wait for its end
}

// startDev runs procaas dev on a directory until the end of the test.
func startDev(t *testing.T, dir, store string) *devServer {
	t.Helper()
	d := new(devServer)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		args := []string{"dev", dir, "--listen", "127.0.0.1:0", "--store", "sqlite:" + store, "--log-level", "error"}
		ended <- Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &d.out, Err: &d.log})
	}()
	d.stop = sync.OnceFunc(func() {
		stop()
		if code := <-ended; code != cli.ExitFine {
			t.Errorf("procaas dev: want exit code %d, have %d and\n%s", cli.ExitFine, code, d.log.text())
		}
	})
	t.Cleanup(d.stop)
	address := regexp.MustCompile(`API +(http://\S+)/v1`)
	eventually(t, "procaas dev to say where it is", func() bool {
		if found := address.FindStringSubmatch(d.out.text()); found != nil {
			d.url = found[1]
		}
		return d.url != ""
	})
	eventually(t, "procaas dev to be ready", func() bool {
		resp, err := http.Get(d.url + "/readyz")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	return d
}

// A stub service answers where its file says, and as its file says now.
func TestDevReloadsStubs(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stub := "services: [{id: orders, listen: '" + address + "', routes: [{path: /v1, reply: {body: WORD}}]}]\n"
	write("a.yaml", `
services: [{id: orders, url: "http://127.0.0.1:1"}]
pipelines: [{id: work, stages: [{id: s, handlers: [{id: h, request: {service: orders, path: /v1}}]}]}]
`)
	write("a.stub.yaml", strings.Replace(stub, "WORD", "before", 1))
	d := startDev(t, dir, filepath.Join(t.TempDir(), "dev.db"))
	answer := func() string {
		resp, err := http.Get("http://" + address + "/v1")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	eventually(t, "the address of the stub", func() bool { return strings.Contains(d.out.text(), "orders at http://"+address) })
	if have := answer(); !strings.Contains(have, "before") {
		t.Errorf("want the stub where its file says, have %s", have)
	}
	write("a.stub.yaml", "services: [{id: orders, roots: []}]\n")
	eventually(t, "the errors of the file", func() bool { return strings.Contains(d.log.text(), "the stub services that were good go on") })
	write("a.stub.yaml", strings.Replace(stub, "WORD", "after", 1))
	eventually(t, "the new stub", func() bool { return strings.Contains(answer(), "after") })

	says := func(want string) {
		t.Helper()
		eventually(t, "dev to say "+want, func() bool { return strings.Contains(d.log.text(), want) })
	}
	write("a.stub.yaml", "services: [{id: ordres, routes: []}]\n")
	says("the stub service orders is gone, and calls of it fail until it is back; restart procaas dev")
	says(`stub service ordres: the pipelines declare no service of this id, so only calls to http://127.0.0.1:`)
	says(`; did you mean "orders"?`)
	if err := os.Remove(filepath.Join(dir, "a.stub.yaml")); err != nil {
		t.Fatal(err)
	}
	says("no stub services (*.stub.yaml) are left in " + dir)
}

// A call that is in flight at the end of dev has its answer: the stubs end after the runs.
func TestDevEndsStubsAfterRuns(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), filepath.Join(t.TempDir(), "dev.db")
	for name, text := range map[string]string{
		"a.yaml": `
services: [{id: orders, url: "http://127.0.0.1:1"}]
pipelines: [{id: work, stages: [{id: s, handlers: [{id: h, retry: {attempts: 1}, request: {service: orders, path: /v1}}]}]}]
`,
		"a.stub.yaml": "services: [{id: orders, routes: [{path: /v1, latency: 1s, reply: {body: {}}}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := startDev(t, dir, store)
	receipt, err := client.New(d.url, "").SubmitEvent(t.Context(), wire.Event{Type: "work"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the call", func() bool {
		all, err := client.New(d.url, "").Services(t.Context())
		return err == nil && len(all) == 1 && all[0].InFlight == 1
	})
	d.stop()
	d = startDev(t, dir, store)
	run, err := client.New(d.url, "").Run(t.Context(), receipt.Run)
	if err != nil || run.Status != model.Succeeded || run.Handlers[0].Attempts != 1 {
		t.Errorf("want the answer of the stub, have %+v, %v", run, err)
	}
}

// A pipeline that is named by its file is no stub service.
func TestDevOfOneFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("pipelines: [{id: work, stages: [{id: s, handlers: [{id: h, wait: {for: 1s}}]}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startDev(t, file, filepath.Join(t.TempDir(), "dev.db"))
}

// TestFirstMinuteOfTheReadme does what the README lets newcomers do, word for word.
func TestFirstMinuteOfTheReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## Your own flow")
	blocks := shellBlock.FindAllStringSubmatch(text, 2)
	if len(blocks) != 2 {
		t.Fatalf("want two blocks of commands below \"Your own flow\", have %d", len(blocks))
	}
	dir := t.TempDir()
	var server *devServer
	var last string // output
	run := func(words []string) {
		t.Helper()
		var out, log lockedBuffer
		if code := Main(t.Context(), words, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &log}); code != cli.ExitFine {
			t.Fatalf("procaas %s: exit code %d\n%s%s", strings.Join(words, " "), code, out.text(), log.text())
		}
		last = out.text()
	}
	for _, words := range ourCommands(blocks[0][1]) {
		switch words[1] {
		case "init":
			run([]string{"init", dir})
		case "dev":
			server = startDev(t, dir, filepath.Join(t.TempDir(), "dev.db"))
		case "plan":
			run(append(words[1:], "-p", dir)) // in the directory itself there is no need of that
		default:
			run(append(words[1:], dir))
		}
	}
	if server == nil {
		t.Fatal("want procaas dev in the first block")
	}
	list := func() {
		t.Helper()
		run([]string{"runs", "list", "--server", server.url})
	}
	for _, words := range ourCommands(blocks[1][1]) {
		run(append(words[1:], "--server", server.url))
		switch words[1] {
		case "submit":
			eventually(t, "the run to end", func() bool { list(); return !regexp.MustCompile(`waiting|running`).MatchString(last) })
		case "explain":
			if !strings.Contains(last, "switched off at order-placed/tell") || !strings.Contains(last, "too many messages") {
				t.Errorf("want the README's switch to be the reason, have\n%s", last)
			}
		}
	}
}

// TestDevReadsAgainWhatHasChanged: its own store beside the pipelines is no change of
// them, and files with errors, or with nothing, never replace good ones.
func TestDevReadsAgainWhatHasChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.yaml")
	write := func(text string) {
		t.Helper()
		// At once, as editors do: half a file could be a good one.
		if err := source.Replace(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(watchedFlow), 0o644); err != nil {
		t.Fatal(err)
	}
	d := startDev(t, dir, filepath.Join(dir, "dev.db"))
	greet := func(want string) bool {
		var out lockedBuffer
		in := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out}
		if code := Main(t.Context(), []string{"submit", "--type", "greet", "--server", d.url}, in); code != cli.ExitFine {
			t.Fatalf("submit: exit code %d\n%s", code, out.text())
		}
		client := client.New(d.url, "")
		runs, err := client.Runs(t.Context(), store.RunFilter{Limit: 1})
		if err != nil || len(runs.Items) != 1 {
			return false
		}
		run, err := client.Run(t.Context(), runs.Items[0].ID)
		return err == nil && run.SharedState["greeting"] == want
	}
	eventually(t, "a greeting", func() bool { return greet("hello") })
	if log := d.log.text(); strings.Contains(log, "reloaded") {
		t.Errorf("want nothing read again while nothing has changed, have\n%s", log)
	}
	// The files are watched from a moment that nobody tells: changes are made until one is seen.
	eventually(t, "the mistake to be told", func() bool {
		write("pipelines: 7\n")
		return strings.Contains(d.log.text(), "the pipelines that were good go on")
	})
	if !greet("hello") {
		eventually(t, "the good pipelines to go on", func() bool { return greet("hello") })
	}
	write("")
	eventually(t, "the empty file to be told", func() bool {
		return strings.Contains(d.log.text(), "procaas: no pipelines in "+file+" (empty), though the server has greet;")
	})
	eventually(t, "the good pipelines to go on", func() bool { return greet("hello") })
	write(strings.Replace(watchedFlow, "greeting: hello", "greeting: good bye", 1))
	eventually(t, "the new greeting", func() bool { return greet("good bye") })
}
