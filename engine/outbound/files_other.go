//go:build !unix

package outbound

// MostFiles returns how many files and connections this process may have open, or 0 if that is not
// known.
func MostFiles() int { return 0 }

// NoMoreFiles reports whether a connection failed because the process or the machine has too many
// open files.
func NoMoreFiles(error) bool { return false }
