package serve

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"procaas/dsl/datum"
	"procaas/engine/api/cli"
	"procaas/engine/clock"
)

const (
	leastMemory   = 64 << 20
	unknownMemory = 2 << 30 // if nobody can tell how much there is

	// Go's memory is bounded to this part of the limit. The rest is for SQLite and the program's code.
	goPart = 0.8
)

// A node works on so many runs at once at least and at most, unless a flag says otherwise. A run in flight takes some 100 KiB
// with its goroutines and connections. The budget of the node bounds those that take more.
const (
	fewestRuns  = 256
	mostRuns    = 1024
	memoryOfOne = 1 << 20
)

// runsOf returns how many runs a node works on at once by default, by its limit of memory and by the files that the process may have
// open, 0 if unknown.
func runsOf(memory int64, files int) int {
	most := mostRuns
	if files > 0 {
		most = min(most, (files-otherFiles)/filesOfRun)
	}
	return max(fewestRuns, min(most, int(memory/memoryOfOne)))
}

// A run has a connection and an idle one. The store, callers and the program have others.
const (
	filesOfRun = 2
	otherFiles = 128
)

// filesOf returns how many open files a node needs for runs in flight.
func filesOf(runs int) int { return filesOfRun*runs + otherFiles }

// memoryLimit returns how many bytes the process may use: what the flag says, or the limit of its
// cgroup, or half of the machine.
func memoryLimit(flag string) (int64, error) {
	if flag != "" {
		n, err := datum.ParseBytes(flag)
		if err != nil {
			return 0, cli.Usagef("--memory %q: %w", flag, err)
		}
		if n < leastMemory {
			return 0, cli.Usagef("--memory %s: want 64MiB or more", flag)
		}
		return int64(n), nil
	}
	if n, err := memlimit.FromCgroup(); err == nil && n < 1<<60 {
		return max(int64(n), leastMemory), nil
	}
	if n, err := memlimit.FromSystem(); err == nil && n < 1<<60 {
		return max(int64(n/2), leastMemory), nil
	}
	return unknownMemory, nil
}

// Garbage may reach heapGrowth percent of the floor (bytes) plus the live heap. A node keeps little and
// allocates much: with Go's default, collecting takes a sixth of its processor time and saves some ten
// megabytes. A node with thousands of runs keeps much.
const (
	heapFloor  = 128 << 20
	heapGrowth = 50
)

// tuneCollector sets up the garbage collector for a limit of the process, unless the environment does. The
// caller must keep the result until the process ends.
func tuneCollector(limit int64) (floor []byte) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
		floor = make([]byte, min(heapFloor, limit/8)) // counts as live for the collector, but uses no memory, since it is never touched
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(goPart*float64(limit)) + int64(len(floor)))
	}
	return floor
}

// freeUnused gives memory back to the system after each reload and after busy times until ctx ends. Reading and comparing definitions
// takes several times what stays of them, as do many runs, and a node at rest would not collect it for minutes.
func freeUnused(ctx context.Context, reloaded func() <-chan struct{}) {
	look := time.NewTicker(restEvery)
	defer look.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var r calm
	for {
		again := reloaded()
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			metrics.Read(allocated)
			if r.frees(allocated[0].Value.Uint64()) {
				debug.FreeOSMemory()
			}
			continue
		case <-again:
		}
		if clock.Pause(ctx, time.Second) { // the caller of the reload has its answer, and nobody holds what was replaced
			runtime.GC() // what pools keep is freed by the second collection
			debug.FreeOSMemory()
			metrics.Read(allocated)
			r.freed(allocated[0].Value.Uint64())
		}
	}
}

// A node is at rest when it allocates at most restAllocates bytes between two looks. Once freeFrom bytes have been allocated, most of
// them are garbage.
const (
	restEvery     = 5 * time.Second
	restAllocates = 16 << 20
	freeFrom      = 64 << 20
)

// A calm finds out when the process has garbage and is at rest, so that collecting it disturbs nobody.
type calm struct {
	last  uint64 // bytes that the process had allocated at the last look
	since uint64 // bytes that it has allocated since memory was given back
}

// frees reports whether to give memory back, by the bytes that the process has allocated since its start.
func (r *calm) frees(allocated uint64) bool {
	fresh := allocated - r.last
	r.last = allocated
	r.since += fresh
	if fresh > restAllocates || r.since < freeFrom {
		return false
	}
	r.since = 0
	return true
}

// freed notes that memory was given back, and what the process has allocated until then.
func (r *calm) freed(allocated uint64) { r.last, r.since = allocated, 0 }
