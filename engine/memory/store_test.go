package memory_test

import (
	"testing"

	"procaas/engine/enginetest/conformance"
	"procaas/engine/memory"
	"procaas/engine/store"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	conformance.Store(t, func(*testing.T) store.Store { return memory.New(nil).Ports() })
}
