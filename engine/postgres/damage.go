package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A row whose data the server cannot read makes each statement fail that returns the data. The
// statement does not say which row it is.

// isDamage reports whether the server could not read data that it has kept.
func isDamage(err error) bool {
	code, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (code.Code == dataCorrupted || code.Code == indexCorrupted)
}

const (
	dataCorrupted  = "XX001"
	indexCorrupted = "XX002"
)

const (
	listReady = "select seq from runs where place = 'ready' order by - priority, deadline, seq limit $1"
	claimOne  = "with c as (select seq from runs where seq = $2 and place = 'ready' for no key update skip locked)" + giveReady
	readData  = "select event, checkpoint, error, labels from runs where seq = $1"
)

// claimApart is claim when some row cannot be read. It claims each run by itself.
func (s *Store) claimApart(ctx context.Context, node int64, limit int, bundle string) (got []claimedRow, aside []store.Claimed, err error) {
	r, err := s.db.pool.Query(ctx, listReady, limit)
	if err != nil {
		return nil, nil, err
	}
	seqs, err := pgx.CollectRows(r, pgx.RowTo[int64])
	for _, seq := range seqs {
		one, failed := s.give(ctx, node, claimOne, seq, bundle)
		got, err = append(got, one...), failed
		if isDamage(failed) {
			var run *store.Claimed
			if run, err = s.setAside(ctx, node, seq, failed); run != nil {
				aside = append(aside, *run)
			}
		}
		if err != nil {
			break
		}
	}
	if len(got)+len(aside) > 0 {
		err = nil // the node must know of these. It will ask again
	}
	return got, aside, err
}

const (
	findReadyRun = "select id, flow, key, ordered, block, pipeline, generation, accepted from runs where seq = $1 and place = 'ready'"
	// It writes no column that it cannot read.
	setRowAside = `update runs set place = case when ordered and block then 'blocked' else 'failed' end, version = version + 1,
	error = $2, error_class = $3, ended = clock_timestamp(), since = clock_timestamp() where seq = $1 and place = 'ready'`
)

// setAside fails a ready run whose row cannot be read. It leaves the run alone, and returns the
// error of its claim, if the damage is elsewhere, such as in an index.
func (s *Store) setAside(ctx context.Context, node, seq int64, why error) (run *store.Claimed, err error) {
	if _, err := s.db.pool.Exec(ctx, readData, seq); !isDamage(err) {
		return nil, errors.Join(why, err)
	}
	err = s.db.tx(ctx, func(t *tx) error {
		c := store.Claimed{Aside: true}
		at := t.asNode(node)
		t.queue(findReadyRun, seq).QueryRow(value(&c.ID, &c.Flow, &c.Key, &c.Ordered, &c.Block, &c.Pipeline, &c.Generation, &c.Accepted))
		if err := t.send(ctx); err != nil {
			return err
		}
		if !at.live {
			return store.ErrFenced
		}
		c.Damage = store.DamagedRun(c.ID, "the row in the table runs", why)
		keys := &keySet{}
		keys.add(c.Ordered, c.Flow, c.Key)
		t.queueLock(keys)
		t.queue(setRowAside, seq, c.Damage.Error(), model.ClassDamaged).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() > 0 {
				run = &c
			}
			return nil
		})
		t.queuePromote(keys)
		return t.commit(ctx)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil // another node was faster
	}
	return run, err
}
