//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package engine

import (
	"errors"
	"syscall"
)

// canPeek says that a connection can be asked whether something has come.
const canPeek = true

// hasInput tells whether there is something to read at a connection, its end or an
// error included, without taking it or waiting for it; and whether it is a response. The
// 408 with which some services end an idle connection is only its end.
func hasInput(fd uintptr) (something, response bool) {
	var b [len("HTTP/1.1 408")]byte
	n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return !errors.Is(err, syscall.EAGAIN), err == nil && n > 0 && string(b[max(0, n-3):n]) != "408"
}
