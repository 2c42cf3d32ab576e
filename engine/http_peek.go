//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package engine

import (
	"errors"
	"syscall"
)

// canPeek says that a connection can be asked whether something has come.
const canPeek = true

// hasInput tells whether there is something to read at a connection, its end or an
// error included, without taking it or waiting for it.
func hasInput(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return !errors.Is(err, syscall.EAGAIN)
}
