package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// plainFlow needs nothing of an add-on.
const plainFlow = `pipelines:
  - id: hello
    shared-state: {greeted: false}
    stages:
      - id: only
        handlers:
          - {id: greet, set: {greeted: true}}
`

// TestProgramWithoutAddons builds the program without any of its products. It must validate, run and serve flows that need none,
// and refuse the others as it refuses any unknown handler type.
func TestProgramWithoutAddons(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "procaas")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-tags=without_balancer,without_queue,without_sharding", "-o", program, "procaas/cmd/procaas")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flow := write("plain.yaml", plainFlow)
	queued := write("queued.yaml", strings.Replace(plainFlow, "set: {greeted: true}", "queue.put: {type: mail}", 1))
	if out, err := exec.Command(program, "validate", queued).CombinedOutput(); err == nil || !strings.Contains(string(out), "queue.put") {
		t.Errorf("want queue.put refused, have %v and\n%s", err, out)
	}
	if out, err := exec.Command(program, "validate", flow).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	serve := exec.Command(program, "serve", "--pipelines", flow, "--store", "sqlite:"+filepath.Join(dir, "o.db"),
		"--listen", "127.0.0.1:0", "--log-format", "json")
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill() }) // it has ended, unless the test failed
	lines := bufio.NewScanner(log)
	server := ""
	for server == "" && lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			server = line.Address
		}
	}
	r, err := http.Post(server+"/v1/events?wait=20s", "application/json", strings.NewReader(`{"type":"hello"}`))
	if err != nil {
		t.Error(err)
	} else {
		var run struct{ Status string }
		if err := json.NewDecoder(r.Body).Decode(&run); err != nil || run.Status != "succeeded" {
			t.Errorf("want a run that succeeded, have %d, %+v, %v", r.StatusCode, run, err)
		}
		r.Body.Close()
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	for lines.Scan() { // until it has ended
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("want an end without an error, have %v", err)
	}
}
