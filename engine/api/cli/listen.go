package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
)

// ListenError explains why a server cannot listen on the address of a flag, and how to mend it.
func ListenError(flag, address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--%[1]s %[2]s: the address is in use: stop the program that serves there, or give --%[1]s another address, such "+
			"as 127.0.0.1:0 for any free port", flag, address)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("--%s %s: this machine does not have the address: give one that it has, or :PORT for all of them", flag, address)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--%s %s: this user may not listen there: give a port above 1023", flag, address)
	case errors.As(err, new(*net.AddrError)), errors.As(err, new(*net.DNSError)), errors.As(err, new(net.UnknownNetworkError)):
		return Usagef("--%s %q: want HOST:PORT such as 127.0.0.1:8080, or :8080 for all addresses of this machine: %w", flag, address, err)
	}
	return fmt.Errorf("--%s %s: %w", flag, address, err)
}
