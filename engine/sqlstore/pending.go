package sqlstore

import (
	"context"

	"procaas/engine/model"
	"procaas/engine/store"
)

// AppendPending appends the event of a row with the id of a run, its number and its event. It leaves
// out a damaged event: the run of that event is set aside when its turn comes.
func AppendPending(all *[]model.Pending, row Row) error {
	var p model.Pending
	var event []byte
	if err := row.Scan(&p.Run, &p.Position, &event, &p.Kept); err != nil {
		return err
	}
	var err error
	if p.Event, err = store.DecodeEvent(event); err == nil {
		*all = append(*all, p)
	}
	return nil
}

const countKept = `select count(*), coalesce(sum({bytes}(event)), 0) from runs
	where flow = $1 and key = $2 and place = 'scheduled' and error_class = 'kept'`

// Kept implements [store.Inbox].
func (s *Store) Kept(ctx context.Context, flow, key string) (k store.Kept, err error) {
	err = find(ctx, s.db, countKept, []any{flow, key}, &k.Events, &k.Bytes)
	return k, err
}
