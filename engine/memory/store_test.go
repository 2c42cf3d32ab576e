package memory_test

import (
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
	"procaas/engine/memory"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	enginetest.Conformance(t, func(*testing.T) engine.Store { return memory.New(nil) })
}
