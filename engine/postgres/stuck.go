package postgres

import (
	"context"
	"time"
)

// A transaction may be stuck in its middle: a part of it has come to the server, and
// the network keeps the rest, or its process stands still. The server waits for it
// as long as the connection lives, for its own timeouts do not count in the midst of
// what was sent together. Those who may not wait end it: it has not been committed,
// and its node finds that out.

// stuckAfter is how old a transaction of a dead node must be to be ended. A younger
// one may be a commit that is just done.
const stuckAfter = time.Second

const endStuck = `select count(*) filter (where pg_terminate_backend(l.pid)) from pg_locks l join pg_stat_activity a using (pid)
	where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.pid <> pg_backend_pid()
	and l.database = (select oid from pg_database where datname = current_database())
	and l.classid::bigint = ($1::text::regclass::oid::bigint - 2147483648) & 4294967295 and l.objid::bigint = $2::bigint & 2147483647
	and a.xact_start < clock_timestamp() - $3 * interval '1 microsecond'`

// endStuck ends the transactions that hold a lock, named by a table and a number,
// and are older than they should be. It gives their number.
func (s *Store) endStuck(ctx context.Context, table string, number int64, age time.Duration) (ended int, err error) {
	if err = s.db.pool.QueryRow(ctx, endStuck, table, number, age.Microseconds()).Scan(&ended); ended > 0 {
		s.log.Warn("transactions were stuck and have been ended, since others wait for them", "table", table, "number", number, "transactions",
			ended)
	}
	return ended, err
}
