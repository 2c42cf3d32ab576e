//go:build linux && !race

package socket

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Read reads what a socket has received. It must not be one that waits.
func Read(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_READ, fd, b) }

// Write writes what the system takes of b. It must not be to a socket that waits.
func Write(fd uintptr, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

func call(number, fd uintptr, b []byte) (int, error) {
	for {
		n, _, e := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch e {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, e
		}
	}
}

// Prompt returns a connection that writes by [Write]. It returns c itself if that is not over TCP.
func Prompt(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	p := &prompt{TCPConn: tcp, raw: raw}
	p.onWrite = p.write
	return p
}

// A prompt is a connection over TCP whose writes are those of this package.
type prompt struct {
	*net.TCPConn
	raw     syscall.RawConn
	onWrite func(fd uintptr) bool // write, made once

	mu   sync.Mutex // guards the following, and is held while a write waits
	left []byte
	n    int
	err  error
}

// Write implements [net.Conn].
func (p *prompt) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.n, p.err = b, 0, nil
	err := p.raw.Write(p.onWrite)
	p.left = nil
	if p.err != nil {
		err = &net.OpError{Op: "write", Net: "tcp", Source: p.LocalAddr(), Addr: p.RemoteAddr(), Err: os.NewSyscallError("write", p.err)}
	} else if op, ok := errors.AsType[*net.OpError](err); ok {
		op.Op = "write" // not raw-write
	}
	return p.n, err
}

// write writes until nothing is left. It returns false to wait until the system takes more.
func (p *prompt) write(fd uintptr) (done bool) {
	for len(p.left) > 0 {
		n, err := Write(fd, p.left)
		if errors.Is(err, syscall.EAGAIN) {
			return false
		}
		if err != nil {
			p.err = err
			return true
		}
		p.left, p.n = p.left[n:], p.n+n
	}
	return true
}
