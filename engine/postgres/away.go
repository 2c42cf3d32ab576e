package postgres

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/pgkit"
)

// IsAway reports whether an error of [Open] means that the server cannot be reached now or does not
// accept connections yet, so that a retry may help. It is false for an invalid address, a wrong
// password, a missing database or role, a file, a schema of another version, and a server that may lose
// data.
func IsAway(err error) bool {
	if errors.As(err, new(*fs.PathError)) {
		return false // a file; its cause looks like one of the network
	}
	away := false
	for _, e := range causes(err) {
		var code *pgconn.PgError
		var network net.Error
		switch {
		case errors.As(e, &code):
			if !passes(code.Code) || isUnsupportedParameter(code) || isUnknownToPooler(code) {
				return false
			}
			away = true
		case errors.As(e, new(*pgconn.ParseConfigError)):
			return false
		case errors.As(e, &network), errors.Is(e, io.EOF), errors.Is(e, io.ErrUnexpectedEOF), errors.Is(e, errStandby):
			away = true
		}
	}
	// With several hosts, none may be the primary now.
	return away || err != nil && strings.Contains(err.Error(), "ValidateConnect failed")
}

// passes reports whether the cause of an error code is temporary.
func passes(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", // the server is stopping or starting
		pgkit.ReadOnly,   // it is a standby now
		"25P03", "25P04", // it has ended an idle transaction
		"40001", "40P01", "55P03":
		return true
	}
	return code[:2] == "08" || code[:2] == "53" // no connection, or no resources
}

// isUnsupportedParameter reports whether a pooler refuses a parameter of the address. It uses the code
// of a lost connection for that.
func isUnsupportedParameter(e *pgconn.PgError) bool {
	return e.Code == "08P01" && strings.HasPrefix(e.Message, "unsupported startup parameter")
}

// isUnknownToPooler reports whether a pooler has no such database or user, with the same code.
func isUnknownToPooler(e *pgconn.PgError) bool {
	return e.Code == "08P01" && (strings.HasPrefix(e.Message, "no such database") || strings.HasPrefix(e.Message, "no such user"))
}

// causes lists the errors that err wraps. Each of several hosts has its own.
func causes(err error) []error {
	{
		var e interface{ Unwrap() []error }
		var e1 interface{ Unwrap() error }
		switch {
		case err == nil:
			return nil
		case errors.As(err, &e):
			var all []error
			for _, part := range e.Unwrap() {
				all = append(all, causes(part)...)
			}
			return all
		case errors.As(err, &e1):
			if below := causes(e1.Unwrap()); len(below) > 0 {
				return below
			}
		}
	}
	return []error{err}
}
