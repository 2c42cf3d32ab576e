//go:build !linux

package sqlite

// A hold has no locks on this system: the lock beside the file is all there is.
type hold struct{}

func holdFile(string) (*hold, error) { return &hold{}, nil }

func (*hold) share() error { return nil }

func (*hold) unshare() error { return nil }

// Close drops nothing.
func (*hold) Close() error { return nil }
