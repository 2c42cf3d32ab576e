package postgres

import (
	"os"

	"golang.org/x/sys/unix"
)

// openProcess opens a process of this machine. It returns nil if the process is not here, or if the system cannot watch it.
func openProcess(name string) *os.File {
	pid, isHere := localPID(name)
	if !isHere {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}

// waitForEnd returns when the process has ended, or false when its file was closed before. It takes no thread meanwhile.
func waitForEnd(process *os.File, name string) bool {
	conn, err := process.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(uintptr) bool { return hasEnded(name) }) == nil // a number that is in use again was another process
}
