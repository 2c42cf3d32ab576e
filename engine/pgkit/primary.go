package pgkit

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OnlyPrimary makes connections only to servers that take writes, as target_session_attrs=read-write does, and tries the hosts of an
// address in turn. Otherwise a pool that finds only a standby, while the primary is away, keeps these connections when the primary is
// back. Then each write on them fails until they are an hour old.
func OnlyPrimary(c *pgx.ConnConfig) {
	c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
}

// ReadOnly is the code of a write where nothing may be written.
const ReadOnly = "25006"

// IsReadOnly reports whether an error is the answer of a server that is a standby, or of a session that may not write.
func IsReadOnly(err error) bool {
	var code *pgconn.PgError
	return errors.As(err, &code) && code.Code == ReadOnly
}
