package enginetest

import "procaas/engine/memory"

// NewMemory makes an empty store in memory that uses the machine's clock, or that of the synctest
// bubble.
func NewMemory() *memory.Store { return memory.New(nil) }
