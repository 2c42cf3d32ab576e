package sql

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/guard"
	"procaas/engine/model"
	"procaas/engine/pgkit"
)

// Codes of PostgreSQL that have a meaning of their own.
const (
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
	queryCanceled         = "57014"
	idleTooLong           = "25P03"
	noDatabase            = "3D000"
)

// A refusal is an error of a statement that has a status, by which rules of on-error know it. Its body has what the server says.
type refusal struct {
	text   string
	status int
	from   *pgconn.PgError // nil if the server found nothing wrong
}

// Error implements error.
func (e *refusal) Error() string { return e.text }

// Unwrap returns the status, and the error of the server.
func (e *refusal) Unwrap() []error {
	status := &model.StatusError{Status: e.status, Method: "SQL"}
	if e.from == nil {
		return []error{status}
	}
	body := map[string]any{}
	for name, value := range map[string]string{
		"code": e.from.Code, "message": e.from.Message, "detail": e.from.Detail, "schema": e.from.SchemaName, "table": e.from.TableName,
		"column": e.from.ColumnName, "constraint": e.from.ConstraintName,
	} {
		if value != "" {
			body[name] = value
		}
	}
	status.Body = body
	return []error{status, e.from}
}

// classified adds the class by which retries and fallbacks know an error.
func classified(err error, readOnly bool) error {
	var e *pgconn.PgError
	var ours *refusal
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours), model.IsPermanent(err), errors.Is(err, guard.ErrNoMemory),
		model.ClassOf(err) == model.ClassCredentials: // a secret is not there, so the server was not asked
		return err
	case errors.As(err, &certificate):
		return model.WithClass(model.ClassCertificate, err)
	case !errors.As(err, &e):
		return broken(err)
	}
	text := e.Message + " (" + e.Code + ")"
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	class, status := classOf(e.Code, readOnly)
	if class != "" {
		return model.WithClass(class, &connectionError{text, err})
	}
	return &refusal{text: text, status: status, from: e}
}

// broken is an error that the server did not send.
func broken(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op // the driver names the address three times
	}
	return model.WithClass("connection", err)
}

// A connectionError has the short text of an error of the server.
type connectionError struct {
	text string
	error
}

// Error implements error.
func (e *connectionError) Error() string { return e.text }

// Unwrap returns the error as it came.
func (e *connectionError) Unwrap() error { return e.error }

// classOf returns the class of a code of PostgreSQL, or the status whose class it gets.
func classOf(code string, readOnly bool) (class string, status int) {
	switch code {
	case "40001", "40P01", "55P03": // it met others: a retry helps
		return "", http.StatusServiceUnavailable
	case "23505", "23P01": // there is one already
		return "", http.StatusConflict
	case queryCanceled:
		return "timeout", 0
	case insufficientPrivilege:
		return "", http.StatusForbidden
	case noDatabase:
		return model.ClassCredentials, 0
	case pgkit.ReadOnly:
		if readOnly {
			return "", http.StatusBadRequest
		}
		return "connection", 0
	case idleTooLong:
		return "connection", 0
	}
	switch code[:min(2, len(code))] {
	case "08", "57": // it hangs up, shuts down or starts
		return "connection", 0
	case "28":
		return model.ClassCredentials, 0
	case "23", "P0": // a constraint, or what a function raises
		return "", http.StatusUnprocessableEntity
	case "53":
		return "", http.StatusServiceUnavailable
	case "58", "XX":
		return "", http.StatusInternalServerError
	}
	return "", http.StatusBadRequest
}
