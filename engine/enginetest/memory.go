package enginetest

import "procaas/engine/memory"

// NewMemory makes an empty store in memory that goes by the machine's clock, or by
// that of the synctest bubble.
func NewMemory() *memory.Store { return memory.New(nil) }
