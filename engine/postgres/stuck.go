package postgres

import (
	"context"
	"time"
)

// A transaction may hang half-way: the server has a part of it, and the network loses the rest or
// the process stands still. The server waits for it as long as the connection lives, because its
// timeouts do not count inside a batch. A node that cannot wait ends it. It was not committed, and
// its own node finds that out.

// stuckAfter is how old a dead node's transaction must be to be ended. A younger one may be a
// commit that is about to finish.
const stuckAfter = time.Second

const endStuck = `select count(*) filter (where pg_terminate_backend(l.pid)) from pg_locks l join pg_stat_activity a using (pid)
	where l.locktype = 'advisory' and l.objsubid = 2 and l.granted and l.pid <> pg_backend_pid()
	and l.database = (select oid from pg_database where datname = current_database())
	and l.classid::bigint = ($1::text::regclass::oid::bigint - 2147483648) & 4294967295 and l.objid::bigint = $2::bigint & 2147483647
	and a.xact_start < clock_timestamp() - $3 * interval '1 microsecond'`

// endStuck ends the transactions that hold a lock, given by a table and a number, and are older
// than age. It returns their number.
func (s *Store) endStuck(ctx context.Context, table string, number int64, age time.Duration) (ended int, err error) {
	if err = s.db.pool.QueryRow(ctx, endStuck, table, number, age.Microseconds()).Scan(&ended); ended > 0 {
		s.log.Warn("transactions were stuck and have been ended, since others wait for them", "table", table, "number", number, "transactions",
			ended)
	}
	return ended, err
}
