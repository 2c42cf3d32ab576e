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
	ExitFine     = 0 // success
	ExitFindings = 1 // findings, a failed run, or a refusal of the server
	ExitUsage    = 2 // wrong command line
	ExitBroken   = 3 // it did not work, and may work later
)

// ErrFindings ends a command that has already printed what is wrong.
var ErrFindings = errors.New("findings")

// FindingsIf returns ErrFindings if any is true.
func FindingsIf(any bool) error {
	if any {
		return ErrFindings
	}
	return nil
}

// A UsageError is an error in the command line.
type UsageError struct{ error }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.error }

// Usage returns err as a UsageError.
func Usage(err error) error { return UsageError{err} }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// An endError ends a command that has printed all its errors.
type endError struct{ code int }

// Error implements error.
func (e endError) Error() string { return fmt.Sprintf("ended with exit code %d", e.code) }

// The HTTP statuses by which a server refuses a request. For any other one, or without an answer, the same
// request may succeed later.
var (
	// wrongUse: the request is invalid, or its target does not exist.
	wrongUse = []int{
		http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}
	// refusals: the request is valid, but this caller may not make it, or not now.
	refusals = []int{
		http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusPreconditionFailed, http.StatusMisdirectedRequest,
	}
)

// exitCode returns the exit code for an error.
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

// End prints an error and returns its exit code.
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

// EndOutput returns the exit code of a command that ended with code, and whose output could not be written because
// of err. A command whose result nobody could read has not worked.
func EndOutput(s Streams, code int, err error) int {
	if err == nil || code != ExitFine {
		return code
	}
	if !errors.Is(err, syscall.EPIPE) { // who closed the pipe knows
		fmt.Fprintf(s.Err, "procaas: the output is incomplete: %v\n", err)
	}
	return ExitBroken
}

// Graver returns the error with the higher exit code. Of many calls, one that got no answer counts more than
// one that was refused.
func Graver(a, b error) error {
	if exitCode(b) > exitCode(a) {
		return b
	}
	return a
}

// Told ends a command with the exit code of an error that was already printed.
func Told(s Streams, err error) error {
	if err == nil {
		return nil
	}
	advise(s.Err, err)
	return endError{exitCode(err)}
}

// advise prints what may help against an error of a call.
func advise(w io.Writer, err error) {
	if errors.Is(err, syscall.ECONNREFUSED) && errors.As(err, new(*url.Error)) {
		fmt.Fprintln(w, "Is a server running there? Start one with procaas serve, or name another with --server.")
	}
	if call, ok := errors.AsType[*url.Error](err); ok && call.Timeout() {
		fmt.Fprintln(w, "The server does not answer: its process may stand still, or have too much to do. Its log and procaas top say more; or "+
			"name another node of the same store with --server.")
	}
	var refused *problem.Problem
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		fmt.Fprintln(w, "Give a token with --token or PROCAAS_TOKEN; an admin makes one by procaas token new.")
	}
	if refused != nil && refused.Status >= http.StatusInternalServerError {
		fmt.Fprintln(w, "The log of this server says why. Try again, or name another node of the same store with --server.")
	}
}
