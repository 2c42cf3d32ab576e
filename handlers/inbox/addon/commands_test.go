package addon

import (
	"testing"

	"procaas/engine/store"
	"procaas/handlers/inbox"
)

// Slots go to the database with the least load until no slot more would help; then nothing moves, also where one slot has
// nearly all of the load.
func TestSpreadGoesByLoad(t *testing.T) {
	t.Parallel()
	v := inbox.View{Loads: make([]int64, store.InboxSlots)}
	owner := map[int]string{}
	for slot := range v.Loads {
		v.Loads[slot], owner[slot] = int64(slot%7*100), "home"
		if slot >= 3000 {
			owner[slot] = "b"
		}
	}
	v.Loads[11] = 10_000
	names := []string{"home", "b", "new"}
	show := func() (sums map[string]int64) {
		v.Cells, sums = nil, map[string]int64{}
		for _, name := range names {
			var slots []int
			for slot := range v.Loads {
				if owner[slot] == name {
					slots, sums[name] = append(slots, slot), sums[name]+v.Loads[slot]+1
				}
			}
			v.Cells = append(v.Cells, inbox.Cell{Name: name, Slots: len(slots), Spans: inbox.FormatSlots(slots)})
		}
		return sums
	}
	show()
	for to, slots := range spread(v) {
		for _, slot := range slots {
			owner[slot] = to
		}
	}
	sums := show()
	for _, name := range names {
		if off := sums[name] - sums["new"]; off < -600 || off > 600 { // the load of one slot
			t.Errorf("want the same load in all, have %v", sums)
		}
	}
	v.Cells[1].Away = "down"
	v.Loads[slotOf(owner, "home")] = 10_000_000
	for _, slots := range spread(v) {
		for _, slot := range slots {
			owner[slot] = "new"
		}
	}
	show()
	v.Cells[1].Away = "down"
	if again := spread(v); len(again) > 0 {
		t.Errorf("want nothing moved by the second spread, have %d slots", len(again["new"])+len(again["home"]))
	}
}

// slotOf finds a slot of a cell.
func slotOf(owner map[int]string, cell string) int {
	for slot := range store.InboxSlots {
		if owner[slot] == cell {
			return slot
		}
	}
	return -1
}
