package clock

import "time"

// A Virtual is a clock that does not move until it is set. It is not safe for concurrent use.
type Virtual struct{ now time.Time }

// NewVirtual returns a clock that shows a time.
func NewVirtual(now time.Time) *Virtual { return &Virtual{now.UTC()} }

// Now returns the time.
func (v *Virtual) Now() time.Time { return v.now }

// Set sets the time.
func (v *Virtual) Set(now time.Time) { v.now = now }
