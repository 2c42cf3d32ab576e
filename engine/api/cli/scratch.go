package cli

import (
	"errors"
	"fmt"
	"os"
)

// Scratch makes a directory for temporary files, and returns a function that removes it. An empty image has no /tmp.
// So it also tries the working directory, and the memory that Linux offers as a directory.
func Scratch(prefix string) (dir string, remove func(), err error) {
	var errs []error
	for _, parent := range []string{os.TempDir(), ".", "/dev/shm"} {
		dir, err := os.MkdirTemp(parent, prefix)
		if err == nil {
			return dir, func() { _ = os.RemoveAll(dir) }, nil
		}
		errs = append(errs, err)
	}
	return "", nil, fmt.Errorf("no directory for temporary files: set TMPDIR to one that this user may write to: %w", errors.Join(errs...))
}
