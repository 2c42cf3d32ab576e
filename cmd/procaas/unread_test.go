package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"procaas/engine/api/client"
	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

// A node whose files have errors starts with the pipelines that are current in the store, and says so until they are
// mended. Without any in the store it does not start.
func TestErrorsInFilesKeepNoNodeFromStarting(t *testing.T) {
	t.Parallel()
	file, store := filepath.Join(t.TempDir(), "ping.yaml"), "sqlite:"+filepath.Join(t.TempDir(), "s.db")
	good, err := os.ReadFile("../../deploy/flows/ping.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broken := strings.Replace(string(good), "set:", "sett:", 1)

	write(broken)
	s := serveHere(t, file, store, "127.0.0.1:0")
	if state := s.exits(); state != "exit status 1" || !strings.Contains(s.text(), "sett") {
		t.Fatalf("without anything in the store: %s, want exit status 1 and the finding\n%s", state, s.text())
	}

	write(string(good))
	s = serveHere(t, file, store, "127.0.0.1:0")
	s.ready()
	s.send(syscall.SIGTERM)
	s.exits()

	write(broken)
	s = serveHere(t, file, store, "127.0.0.1:0")
	c := client.New(s.ready(), "")
	h, err := c.Health(t.Context(), false)
	if err != nil || !strings.Contains(h.Degraded, "own have errors") || !strings.Contains(h.Degraded, "sett") {
		t.Errorf("have %+v, %v, want it to name the error of its files", h, err)
	}
	result, _, err := c.SubmitAndWait(t.Context(), []byte(`{"type": "ping"}`), 10*time.Second)
	if err != nil || result.Status != string(model.Succeeded) {
		t.Errorf("have %+v, %v, want a run that succeeded", result, err)
	}
	s.says("so it serves those that are current in the store")

	write(string(good))
	s.send(syscall.SIGHUP)
	patience.Until(t, "nothing to be degraded", func() bool {
		h, err := c.Health(t.Context(), false)
		return err == nil && h.Degraded == ""
	})
	s.send(syscall.SIGTERM)
	if state := s.exits(); state != "exit status 0" {
		t.Errorf("SIGTERM: %s", state)
	}
}

// ready waits until the node accepts and runs events, and returns its address.
func (s *signalled) ready() (address string) {
	s.t.Helper()
	s.says(`"msg":"serving"`)
	for line := range strings.Lines(s.text()) {
		var said struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "serving" {
			address = said.Address
		}
	}
	c := client.New(address, "").Unverified()
	patience.Until(s.t, "the node to be ready", func() bool { _, err := c.Health(s.t.Context(), false); return err == nil })
	return address
}
