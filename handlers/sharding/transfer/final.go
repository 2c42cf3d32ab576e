package transfer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// passing are the classes of SQLSTATE that say something about the moment: connections, read-only
// servers, logins, serialization, resources, states of objects, operators, the system, and bugs of
// the server. After any other error of a server a retry would only repeat it, while its slot keeps
// the log of the source.
var passing = []string{"08", "25", "28", "40", "53", "55", "57", "58", "XX"}

// errSwitchMap marks an error of the map, which is another database, and whose outcome is unknown.
var errSwitchMap = errors.New("switch the map")

// final returns an error of a step as a refusal if a retry would meet it again, with what to do
// about it.
func final(err error) error {
	var pg *pgconn.PgError
	if err == nil || MustRestart(err) || errors.Is(err, ErrBusy) || errors.Is(err, errSwitchMap) || !errors.As(err, &pg) ||
		slices.Contains(passing, pg.Code[:min(2, len(pg.Code))]) {
		return err
	}
	var refused *RefusedError
	if errors.As(err, &refused) {
		return err
	}
	// Without the error's detail, which may have a whole row.
	return &RefusedError{[]string{fmt.Sprintf("%v; %s, and then move the key again", err, remedy(pg.Code))}}
}

// remedy says what to do about an error of a server that is not of the moment.
func remedy(code string) string {
	switch {
	case code == "42501": // insufficient_privilege
		return "grant this right to the role of procaas"
	case strings.HasPrefix(code, "22"):
		return "correct these values in the source, or the type of the column in the target"
	case strings.HasPrefix(code, "23"):
		return "correct these rows in the source, or the constraint or the row that refuses them in the target"
	}
	return "make the tables alike on both shards"
}
