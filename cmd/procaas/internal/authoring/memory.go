package authoring

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A command that ends soon hardly needs its garbage collected. shortHeap is how far it may grow beyond what lives, in percent, as long
// as it stays within shortPart of the limit of its container.
const (
	shortHeap = 400
	shortPart = 0.8
)

// collectSeldom makes a short command faster: reading a thousand pipelines leaves much garbage, and collecting it would take a fifth of
// the time. The environment decides if it says something.
func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(shortHeap)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := memlimit.FromCgroup(); err == nil && limit < 1<<60 {
		debug.SetMemoryLimit(int64(shortPart * float64(limit)))
	}
}
