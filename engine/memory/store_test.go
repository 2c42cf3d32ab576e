package memory_test

import (
	"testing"

	"procaas/engine/enginetest"
	"procaas/engine/memory"
	"procaas/engine/store"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	enginetest.Conformance(t, func(*testing.T) store.Store { return memory.New(nil).Ports() })
}
