package sqlstore

import (
	"procaas/engine/model"
	"procaas/engine/store"
)

// AppendPending appends the event of a row with the id of a run, its number and its event. It leaves
// out a damaged event: the run of that event is set aside when its turn comes.
func AppendPending(all *[]model.Pending, row Row) error {
	var p model.Pending
	var event []byte
	if err := row.Scan(&p.Run, &p.Position, &event); err != nil {
		return err
	}
	var err error
	if p.Event, err = store.DecodeEvent(event); err == nil {
		*all = append(*all, p)
	}
	return nil
}
