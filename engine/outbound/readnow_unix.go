//go:build unix

package outbound

import (
	"errors"
	"syscall"
)

// readNow reads what has come on a connection without waiting for more. The connection is quiet when it is open and
// nothing has come.
func readNow(fd uintptr, b []byte) (n int, quiet bool) {
	n, err := syscall.Read(int(fd), b)
	return n, errors.Is(err, syscall.EAGAIN)
}
