package cells

import (
	"context"
	"slices"

	"procaas/engine/store"
)

// KeyData implements [store.Eraser]. Runs that ended in another cell stay there, so all cells must answer.
func (s runs) KeyData(ctx context.Context, flow, key string) (all store.KeyData, err error) {
	for _, p := range s.live() {
		d, err := use(ctx, p, func(db *store.Cell) (store.KeyData, error) { return db.Eraser.KeyData(ctx, flow, key) })
		all.Add(d)
		if err != nil {
			return all, err
		}
	}
	all.Entities = min(all.Entities, 1)
	return all, nil
}

// EraseKey implements [store.Eraser]. The cell that has the key comes first: after it the key begins anew. A cell that is away
// is an error.
func (s runs) EraseKey(ctx context.Context, flow, key string) (all store.KeyData, err error) {
	home := s.partOf(key)
	rest := slices.DeleteFunc(slices.Clone(s.live()), func(p *part) bool { return p == home })
	for _, p := range append([]*part{home}, rest...) {
		d, err := use(ctx, p, func(db *store.Cell) (store.KeyData, error) { return db.Eraser.EraseKey(ctx, flow, key) })
		all.Add(d)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Scrub implements [store.Eraser].
func (s runs) Scrub(ctx context.Context, whole bool) (remains []string, err error) {
	for _, p := range s.live() {
		remains, err = use(ctx, p, func(db *store.Cell) ([]string, error) { return db.Eraser.Scrub(ctx, whole) })
		if err != nil {
			return nil, err
		}
	}
	return remains, nil
}

// KeyTasks implements [store.TaskEraser].
func (t Tasks) KeyTasks(ctx context.Context, types []string, key string) (store.TaskData, error) {
	return t.ofKey(ctx, func(e store.TaskEraser) (store.TaskData, error) { return e.KeyTasks(ctx, types, key) })
}

// EraseTasks implements [store.TaskEraser].
func (t Tasks) EraseTasks(ctx context.Context, types []string, key string, waiting bool) (store.TaskData, error) {
	return t.ofKey(ctx, func(e store.TaskEraser) (store.TaskData, error) { return e.EraseTasks(ctx, types, key, waiting) })
}

// ofKey adds up what all cells have. A cell that is away is an error.
func (t Tasks) ofKey(ctx context.Context, do func(store.TaskEraser) (store.TaskData, error)) (all store.TaskData, err error) {
	for _, p := range t.live() {
		d, err := use(ctx, p, func(db *store.Cell) (store.TaskData, error) { return do(db.Tasks.Eraser) })
		all.Add(d)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}
