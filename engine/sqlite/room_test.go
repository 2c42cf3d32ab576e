package sqlite

import (
	"testing"

	"procaas/engine/store"
)

func TestDiskWithoutRoomIsAFinding(t *testing.T) {
	t.Parallel()
	for free, want := range map[uint64]string{leastRoom: store.CheckFine, leastRoom - 1: store.CheckWarning, 0: store.CheckWarning} {
		if c := roomFor(1<<20, free); c.Level != want || (c.Remedy != "") != (want == store.CheckWarning) {
			t.Errorf("%d bytes are free: want %s, have %+v", free, want, c)
		}
	}
	if all := room(t.TempDir(), 0); len(all) != 1 {
		t.Errorf("want the disk looked at, have %+v", all)
	}
}
