package engine_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/enginetest/patience"
	"procaas/engine/memory"
)

// A lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu   sync.Mutex // guards the following
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}

// A node whose claims fail looks alive: it renews its lease, and accepts events.
func TestNodeIsNotReadyWhileItCanClaimNothing(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	db := &enginetest.Faulty{Store: memory.New(time.Now).Ports(), Before: func(op string) error {
		if op == "claim" && broken.Load() {
			return errors.New("a page cannot be read")
		}
		return nil
	}}
	log := &lockedBuffer{}
	e := enginetest.Start(t, engine.Options{
		Store: db.Ports(), Bundle: enginetest.Load(t, "pipelines: []"), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	patience.Until(t, "the node says that it can claim nothing", func() bool {
		err := e.Healthy(t.Context())
		return err != nil && strings.Contains(err.Error(), "no run could be taken from the store") &&
			strings.Contains(err.Error(), "a page cannot be read")
	})
	if lines := log.count("runs cannot be claimed"); lines != 1 {
		t.Errorf("want one line of the log, have %d", lines)
	}
	broken.Store(false)
	patience.Until(t, "the node is ready again", func() bool { return e.Healthy(t.Context()) == nil })
}
