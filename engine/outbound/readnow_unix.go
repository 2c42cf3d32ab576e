//go:build unix

package outbound

import (
	"errors"
	"io"
	"os"
	"syscall"

	"procaas/engine/socket"
)

// readNow reads received data without waiting. The error is errQuiet if the connection is open and
// has no data, and [io.EOF] at its end.
func readNow(fd uintptr, b []byte) (int, error) {
	n, err := uninterrupted("read", func() (int, error) { return socket.Read(fd, b) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// writeNow writes what the system takes without waiting. The error is errQuiet if that is nothing.
func writeNow(fd uintptr, b []byte) (int, error) {
	return uninterrupted("write", func() (int, error) { return socket.Write(fd, b) })
}

// uninterrupted makes a system call that does not wait.
func uninterrupted(name string, call func() (int, error)) (int, error) {
	for {
		n, err := call()
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, syscall.EAGAIN):
			return 0, errQuiet
		case !errors.Is(err, syscall.EINTR):
			return 0, os.NewSyscallError(name, err)
		}
	}
}
