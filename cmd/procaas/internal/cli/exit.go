package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"syscall"

	"procaas/engine/api/problem"
)

// The exit codes, as --help shows them.
const (
	ExitFine     = 0 // nothing to complain about
	ExitFindings = 1 // findings, a run that failed, or a server that refuses
	ExitUsage    = 2 // wrong use of the command line
	ExitBroken   = 3 // could not work
)

// ErrFindings ends a command whose output already says what is wrong.
var ErrFindings = errors.New("findings")

// FindingsIf ends a command with ErrFindings if there are any.
func FindingsIf(any bool) error {
	if any {
		return ErrFindings
	}
	return nil
}

// A UsageError says that the command line makes no sense.
type UsageError struct{ error }

// Usage makes an error one of usage.
func Usage(err error) error { return UsageError{err} }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// An endError ends a command that has told all its errors itself.
type endError struct{ code int }

// Error implements error.
func (e endError) Error() string { return fmt.Sprintf("ended with exit code %d", e.code) }

// The statuses by which a server says why it does not do what a command asks for.
// All others, and no answer at all, mean that it could not work, and that the same
// may work later.
var (
	// wrongUse: it makes no sense, or what it is about is not there.
	wrongUse = []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}
	// refusals: it makes sense, and this caller may not do it, or not as things are.
	refusals = []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed, http.StatusMisdirectedRequest,
	}
)

// exitCode is the code by which a command ends that met an error; what is wrong
// is said elsewhere.
func exitCode(err error) int {
	var ended endError
	var refused *problem.Problem
	switch {
	case err == nil:
		return ExitFine
	case errors.As(err, &ended):
		return ended.code
	case errors.Is(err, ErrFindings):
		return ExitFindings
	case errors.As(err, new(UsageError)):
		return ExitUsage
	case !errors.As(err, &refused):
		return ExitBroken
	case slices.Contains(wrongUse, refused.Status):
		return ExitUsage
	case slices.Contains(refusals, refused.Status):
		return ExitFindings
	}
	return ExitBroken
}

// End says what is wrong with a command that has ended with an error, and returns its exit code.
func End(s Streams, err error) int {
	code := exitCode(err)
	if err == nil || errors.Is(err, ErrFindings) || errors.As(err, new(endError)) {
		return code
	}
	fmt.Fprintf(s.Err, "procaas: %v\n", err)
	if errors.As(err, new(UsageError)) {
		fmt.Fprintln(s.Err, "See procaas --help.")
		return code
	}
	advise(s.Err, err)
	return code
}

// Graver gives that of two errors which ends a command with the higher exit code: of
// many calls, one that could not be made counts more than one that was refused.
func Graver(a, b error) error {
	if exitCode(b) > exitCode(a) {
		return b
	}
	return a
}

// Told ends a command with the exit code of an error that people have read already.
func Told(s Streams, err error) error {
	if err == nil {
		return nil
	}
	advise(s.Err, err)
	return endError{exitCode(err)}
}

// advise says what may help against an error of a call.
func advise(w io.Writer, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, new(*url.Error)) {
		fmt.Fprintln(w, "Is a server running there? Start one with procaas serve, or name another with --server.")
	}
	var refused *problem.Problem
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		fmt.Fprintln(w, "Give a token with --token or PROCAAS_TOKEN; an admin makes one by procaas token new.")
	}
	if refused != nil && refused.Status >= http.StatusInternalServerError {
		fmt.Fprintln(w, "The log of this server says why. Try again, or name another node of the same store with --server.")
	}
}
