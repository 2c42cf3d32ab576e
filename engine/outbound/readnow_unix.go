//go:build unix

package outbound

import (
	"errors"
	"syscall"
)

// readNow reads received data without waiting. The connection is quiet if it is open and has no
// data.
func readNow(fd uintptr, b []byte) (n int, quiet bool) {
	n, err := syscall.Read(int(fd), b)
	return n, errors.Is(err, syscall.EAGAIN)
}
