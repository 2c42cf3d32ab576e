package sqlite

import (
	"context"

	"procaas/engine/store"
)

// Activate implements [store.Bundles]. The cache of the writer would keep the pages of definitions, which nobody reads, until hot ones
// replace them. So it releases its memory, and reads hot pages again.
func (s *Store) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (current string, err error) {
	current, err = s.common.Activate(ctx, hash, files, onlyNew, by)
	if err == nil {
		_ = s.writer.alone(ctx, func(t *tx) error { return t.exec("pragma shrink_memory") }) // the definition is stored, whatever happens here
	}
	return current, err
}
