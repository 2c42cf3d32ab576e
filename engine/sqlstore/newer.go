package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Newer implements [store.Runs]. Most of the runs continue. So it reads places and versions first,
// and neither their checkpoints nor the history, unless nodes have released all of the runs.
func (s *Store) Newer(ctx context.Context, of []store.Seen) (news []store.RunRecord, err error) {
	for len(of) > 0 {
		n := min(len(of), listSizes[len(listSizes)-1])
		if news, err = s.newerOf(ctx, news, of[:n]); err != nil {
			return nil, err
		}
		of = of[n:]
	}
	return news, nil
}

// newerOf appends the news of the runs of one statement.
func (s *Store) newerOf(ctx context.Context, news []store.RunRecord, of []store.Seen) ([]store.RunRecord, error) {
	left := make(map[string]store.Seen, len(of))
	ids := make([]string, 0, len(of))
	for _, seen := range of {
		left[seen.Run] = seen
		ids = append(ids, seen.Run)
	}
	if slices.ContainsFunc(of, func(seen store.Seen) bool { return !seen.Left }) {
		list, args := idList(ids)
		err := s.db.Read(ctx, "select id, version, {place} from runs where id in "+list, args, func(row Row) error {
			var id string
			var version int64
			var place model.Place
			err := row.Scan(&id, &version, &place)
			if !left[id].IsNews(place.Status(), version) {
				delete(left, id)
			}
			return err
		})
		if err != nil || len(left) == 0 {
			return news, err
		}
	}
	ids = slices.AppendSeq(ids[:0], maps.Keys(left))
	list, args := idList(ids)
	// Both tables in one statement, as in findRecord.
	query := fmt.Sprintf("select "+hotColumns+" from runs where id in %s union all select "+pastColumns+" from history where id in %[2]s",
		checkpoint, list, checkpoint)
	err := s.db.Read(ctx, query, args, func(row Row) error {
		r, err := scanRecord(row, store.DecodeEvent)
		if err == nil && left[r.ID].IsNews(r.Status, r.Version) {
			news = append(news, r.RunRecord)
		}
		return err
	})
	return news, err
}

// listSizes are the numbers of ids in a statement. A few statements serve lists of all lengths.
var listSizes = []int{1, 16, 256}

// idList returns an SQL list for up to 256 ids, and its arguments. It repeats the last id to fill
// the list.
func idList(ids []string) (list string, args []any) {
	size := listSizes[0]
	for _, n := range listSizes {
		size = n
		if n >= len(ids) {
			break
		}
	}
	var b strings.Builder
	for i := range size {
		b.WriteString("(,"[min(i, 1) : min(i, 1)+1])
		b.WriteString("$" + strconv.Itoa(i+1))
		args = append(args, ids[min(i, len(ids)-1)])
	}
	return b.String() + ")", args
}
