package source

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

func TestAReaderHeedsWhatItReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("order.schema.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := NewReader([]string{dir})
	for _, name := range []string{"order.schema.json", "not-yet.json"} {
		_, _ = r.Read(at(name))
	}
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "order.schema.json": true, "not-yet.json": true,
		"out.json": false, "log": false, "a.test.yaml": false, "a.stub.yaml": false, "dev.db-wal": false, ".a.yaml.swp": false,
	} {
		if have := r.Reads(at(name)); have != want {
			t.Errorf("%s: want %t, have %t", name, want, have)
		}
	}
}

// TestWatchingEndsWhereAChangeWritesALog: what is written at each change, such as the log of
// procaas dev in its own directory, is no change.
func TestWatchingEndsWhereAChangeWritesALog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("text"), 0o600); err != nil {
			t.Error(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "team"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var changes atomic.Int64
	done := make(chan error)
	go func() {
		done <- Watch(ctx, []string{dir}, IsPipeline, func() {
			write("log")
			changes.Add(1)
		})
	}()
	// The files are watched from a moment that nobody tells: changes are made until one is seen.
	for changes.Load() == 0 {
		write("a.yaml")
		time.Sleep(2 * settle)
	}
	time.Sleep(4 * settle)
	seen := changes.Load()
	write("log")
	time.Sleep(4 * settle)
	if now := changes.Load(); now != seen {
		t.Errorf("want nothing after the log has changed, have %d changes more", now-seen)
	}
	if err := os.Remove(filepath.Join(dir, "team")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); changes.Load() == seen; time.Sleep(settle) {
		if time.Now().After(deadline) {
			t.Fatal("want a change when a directory goes")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
