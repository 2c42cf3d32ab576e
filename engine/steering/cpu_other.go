//go:build !unix

package steering

import "time"

// cpuTime returns the processor time that this process has used; 0, since it is unknown.
func cpuTime() time.Duration { return 0 }
