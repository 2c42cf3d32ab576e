//go:build unix

package simulate

import (
	"errors"
	"net"
	"syscall"
)

// setBacklog sets how many connections wait for a listener that accepts none.
func setBacklog(l net.Listener, n int) error {
	raw, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), n) })
	return errors.Join(err, failed)
}
