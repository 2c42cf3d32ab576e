// Package ports has ports for tests whose programs are started by number, or come back at the place where they were.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are from first, and below end. The system gives none of these to who asks for any port, nor to outgoing connections. Those that
// it gives may be gone again as soon as the program behind them is down.
const (
	first = 10_000
	end   = 32_000
)

// Reserve returns a port of 127.0.0.1 at which nobody listens. Until release, or the end of this process, no other call returns it, in
// any process of this machine, whether somebody listens at it or not.
func Reserve() (port int, release func(), err error) {
	for range 100 {
		port = first + rand.IntN(end-first)
		if release, err = take(port); err == nil {
			return port, release, nil
		}
	}
	return 0, nil, fmt.Errorf("there is no free port among a hundred between %d and %d: %w", first, end, err)
}

// take marks a port as taken: it holds the port of this number for UDP, which no test listens at.
func take(port int) (release func(), err error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	mark, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, errors.Join(err, mark.Close())
	}
	return func() { _ = mark.Close() }, l.Close()
}
