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

// The name of a process consists of the boot id of the machine, its ids inside its container, and
// its start time, because ids are reused.

// nameProcess returns the name of a process of this machine. It is empty if the system does not
// provide all parts.
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
		return "" // processes of another container
	}
	_, began, err := readProcess(pid)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d %s", bytes.TrimSpace(boot), numbers, pid, began)
}

// localPID returns the number of a process of this machine. isHere is false for one of another machine or container.
func localPID(process string) (pid int, isHere bool) {
	named, here := strings.Fields(process), strings.Fields(nameProcess(os.Getpid()))
	if len(named) != 4 || len(here) != 4 || named[0] != here[0] || named[1] != here[1] {
		return 0, false
	}
	pid, err := strconv.Atoi(named[2])
	return pid, err == nil
}

// hasEnded reports whether a process was on this machine and has certainly ended.
func hasEnded(process string) bool {
	pid, isHere := localPID(process)
	if !isHere {
		return false
	}
	if state, began, err := readProcess(pid); err == nil {
		// a zombie was killed, and its parent has not waited for it yet
		return !strings.HasSuffix(process, " "+began) || state == "Z" || state == "X"
	}
	// It may only be invisible to other users.
	other, err := os.FindProcess(pid)
	if err == nil {
		err = other.Signal(syscall.Signal(0))
	}
	return errors.Is(err, os.ErrProcessDone)
}

// readProcess reads the state of a process, and its start time.
func readProcess(pid int) (state, began string, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The name comes second, in parentheses, and may contain anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const stateAt, beganAt = 0, 19
	if len(fields) <= beganAt {
		return "", "", fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	return fields[stateAt], fields[beganAt], nil
}
