package store

import (
	"errors"
	"fmt"
)

// DamagedRun returns an [ErrDamaged] of a run. column is what cannot be read, such as runs.event,
// and found is what was there. The error says what people can do.
func DamagedRun(run, column string, found error) error {
	return fmt.Errorf("%[1]w: %[2]s of run %[3]s is damaged: %[4]w. Check the disk. "+
		"If a backup has the value, put it back and run procaas runs retry %[3]s. "+
		"Otherwise run procaas runs cancel %[3]s, and submit the event again with another id", ErrDamaged, column, run, found)
}

// IsOfData reports whether an error is about the data of one write, so that other writes may
// succeed. Nothing was written.
func IsOfData(err error) bool { return errors.Is(err, ErrRefused) || errors.Is(err, ErrDamaged) }
