package authoring

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A command that ends soon hardly needs its garbage collected. shortHeap is how far it may grow beyond what lives and beyond shortFloor,
// in percent, as long as it stays within shortPart of the limit of its container.
const (
	shortFloor = 64 << 20
	shortHeap  = 400
	shortPart  = 0.8
)

// collectSeldom makes a short command faster: reading a thousand pipelines leaves much garbage, and collecting it would take a third of
// the time. The environment decides if it says something. The caller must keep the result until the command ends.
func collectSeldom() (floor []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(shortHeap)
		floor = make([]byte, shortFloor) // counts as live for the collector, but uses no memory, since it is never touched
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return floor
	}
	if limit, err := memlimit.FromCgroup(); err == nil && limit < 1<<60 {
		debug.SetMemoryLimit(int64(shortPart*float64(limit)) + int64(len(floor)))
	}
	return floor
}
