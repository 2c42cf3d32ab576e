package playground

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
	"time"
)

// limitProcess limits the processor time and the memory of this process, and offers it to the kernel first when the
// memory of the machine or the container runs out, before the node.
func limitProcess() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // not everywhere, and the other bounds hold without it
	seconds := uint64(maxProcessor / time.Second)
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}); err != nil {
		return fmt.Errorf("limit the processor time: %w", err)
	}
	most := uint64(privateMemory()) + 2*maxMemory
	if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}

// privateMemory returns the bytes that count for the limit so far. Some builds, such as those with the race detector,
// map much more than they use.
func privateMemory() int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kilobytes int64
		if n, _ := fmt.Sscanf(lines.Text(), "VmData: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	return 0
}

// executable is this program, also when its file has been replaced by a newer one.
func executable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}
