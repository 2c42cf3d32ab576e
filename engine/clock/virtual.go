package clock

import "time"

// A Virtual is a time that stands still until it is set. It is not safe for concurrent use.
type Virtual struct{ now time.Time }

// NewVirtual makes a clock that stands at a time.
func NewVirtual(now time.Time) *Virtual { return &Virtual{now.UTC()} }

// Now tells the time.
func (v *Virtual) Now() time.Time { return v.now }

// Set lets it be another time.
func (v *Virtual) Set(now time.Time) { v.now = now }
