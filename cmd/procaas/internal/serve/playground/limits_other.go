//go:build !linux

package playground

import "os"

// limitProcess has nothing to add here. The node ends the process after a time.
func limitProcess() error { return nil }

// executable is this program.
func executable() (string, error) { return os.Executable() }
