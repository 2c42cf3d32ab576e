package sealed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"procaas/engine/memory"
	"procaas/engine/store"
)

// exporting has rows to move.
type exporting struct{ store.SlotMoves }

func (exporting) Export(context.Context, store.CellPart, []int, int64, string) (rows []byte, next string, err error) {
	return []byte("rows"), "", nil
}

// TestNodeWithAnOldFileMovesNothing rotates the keys of a cell by a file that the node which moves does not have.
func TestNodeWithAnOldFileMovesNothing(t *testing.T) {
	t.Parallel()
	s, log := memory.New(nil).Ports(), slog.New(slog.DiscardHandler)
	files := [2]string{filepath.Join(t.TempDir(), "old.json"), filepath.Join(t.TempDir(), "new.json")}
	_, err := NewKey(files[0])
	data, failed := os.ReadFile(files[0])
	if err := errors.Join(err, failed, os.WriteFile(files[1], data, 0o600)); err != nil {
		t.Fatal(err)
	}
	old, fresh := NewVault(s.Documents, files[0], log), NewVault(s.Documents, files[1], log)
	if _, err := old.Rotate(t.Context(), store.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	m := moves{exporting{}, old, &Ring{}}
	if _, _, err := m.Export(t.Context(), store.CellPart(""), nil, 0, ""); err != nil {
		t.Errorf("with all keys: %v", err)
	}
	if _, err := NewKey(files[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Rotate(t.Context(), store.Actor{Name: "ann"}); err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Export(t.Context(), store.CellPart(""), nil, 0, "")
	if _, ok := errors.AsType[*KeyError](err); !ok {
		t.Errorf("it moves rows whose keys it does not have: %v", err)
	}
}
