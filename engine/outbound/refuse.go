package outbound

import "fmt"

// A refusal is an error that repeating the call cannot mend.
type refusal struct{ error }

// Permanent tells those who repeat calls.
func (refusal) Permanent() bool { return true }

func (r refusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }
