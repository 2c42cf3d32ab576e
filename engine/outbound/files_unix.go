//go:build unix

package outbound

import (
	"errors"
	"math"
	"syscall"
)

// MostFiles returns how many files and connections this process may have open, or 0 if that is not
// known.
func MostFiles() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), math.MaxInt32))
}

// NoMoreFiles reports whether a connection failed because the process or the machine has too many
// open files.
func NoMoreFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
