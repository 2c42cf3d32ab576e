// Package watched tells tests what happens to files.
package watched

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Closes watches a directory. It returns a function that returns which of the named files any
// process has closed since then.
func Closes(t testing.TB, dir string) func(files ...string) []string {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	var closed []string
	return func(files ...string) (found []string) {
		t.Helper()
		for buf := make([]byte, 64<<10); ; {
			n, err := syscall.Read(fd, buf)
			if errors.Is(err, syscall.EAGAIN) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			closed = append(closed, names(buf[:n])...)
		}
		for _, name := range files {
			if slices.Contains(closed, filepath.Base(name)) {
				found = append(found, name)
			}
		}
		return found
	}
}

// names returns the names of files in events of inotify.
func names(events []byte) (all []string) {
	for len(events) > 0 {
		length := binary.NativeEndian.Uint32(events[12:])
		name := events[syscall.SizeofInotifyEvent : syscall.SizeofInotifyEvent+length]
		all = append(all, string(bytes.TrimRight(name, "\x00")))
		events = events[syscall.SizeofInotifyEvent+length:]
	}
	return all
}
