//go:build unix && (!linux || race)

package socket

import "syscall"

// Read reads what a socket has received. It must not be one that waits.
func Read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// Write writes what the system takes of b. It must not be to a socket that waits.
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
