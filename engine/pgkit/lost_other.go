//go:build !linux

package pgkit

import (
	"syscall"
	"time"
)

// boundSilence returns nil: only probes find a lost connection here.
func boundSilence(time.Duration) func(network, address string, c syscall.RawConn) error { return nil }
