package clock

import "time"

// A Virtual is a clock that stands still until it is set. It is not safe for concurrent use.
type Virtual struct{ now time.Time }

// NewVirtual returns a clock that stands at a time.
func NewVirtual(now time.Time) *Virtual { return &Virtual{now.UTC()} }

// Now returns the time.
func (v *Virtual) Now() time.Time { return v.now }

// Set sets the time.
func (v *Virtual) Set(now time.Time) { v.now = now }
