//go:build !unix

package simulate

import (
	"errors"
	"net"
)

// setBacklog fails, because this system fixes the backlog of a listener.
func setBacklog(net.Listener, int) error {
	return errors.New("this system cannot change the backlog of a listener: run it on Linux or macOS")
}
