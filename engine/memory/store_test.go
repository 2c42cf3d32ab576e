package memory_test

import (
	"testing"
	"time"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/memory"
	"procaas/engine/store"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	conformance.Store(t, func(*testing.T) store.Store { return memory.New(nil).Ports() })
}

func TestRunsAreKeptByTheirPipeline(t *testing.T) {
	t.Parallel()
	now := time.Now()
	conformance.Retention(t, memory.New(func() time.Time { return now }).Ports(), func(_ *testing.T, by time.Duration) { now = now.Add(by) })
}

func TestRunsLeaveThroughAnArchive(t *testing.T) {
	t.Parallel()
	now := time.Now()
	conformance.Archive(t, memory.New(func() time.Time { return now }).Ports(), func(_ *testing.T, by time.Duration) { now = now.Add(by) })
}
