package outbound

import "fmt"

// A refusal is an error that a retry cannot mend.
type refusal struct{ error }

// Permanent marks the error for [model.IsPermanent].
func (refusal) Permanent() bool { return true }

func (r refusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }
