package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// A process is named by the machine since its start, the numbers that hold within its
// container, its own among them, and when it began: a number is given again.

// nameProcess names a process of this machine; the name is empty where the system does not
// tell all of that.
func nameProcess(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	numbers, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return "" // these are the processes of another container
	}
	_, began, err := readProcess(pid)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d %s", bytes.TrimSpace(boot), numbers, pid, began)
}

// hasEnded reports whether a process was one of this machine, and has ended for certain.
func hasEnded(process string) bool {
	named, here := strings.Fields(process), strings.Fields(nameProcess(os.Getpid()))
	if len(named) != 4 || len(here) != 4 || named[0] != here[0] || named[1] != here[1] {
		return false
	}
	pid, err := strconv.Atoi(named[2])
	if err != nil {
		return false
	}
	if state, began, err := readProcess(pid); err == nil {
		return began != named[3] || state == "Z" || state == "X" // or it was killed, and nobody has asked for its end yet
	}
	// It may only be hidden from other accounts.
	other, err := os.FindProcess(pid)
	if err == nil {
		err = other.Signal(syscall.Signal(0))
	}
	return errors.Is(err, os.ErrProcessDone)
}

// readProcess reads the state of a process, and when it began.
func readProcess(pid int) (state, began string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The name comes second, in brackets, and may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const stateAt, beganAt = 0, 19
	if len(fields) <= beganAt {
		return "", "", fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	return fields[stateAt], fields[beganAt], nil
}
