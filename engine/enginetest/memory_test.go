package enginetest_test

import (
	"testing"

	"procaas/engine"
	"procaas/engine/enginetest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	enginetest.Conformance(t, func(*testing.T) engine.Store { return enginetest.NewMemory() })
}
