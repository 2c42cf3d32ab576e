package store_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine/store"
)

// chained makes n records behind a link.
func chained(base store.AuditLink, n int) []store.Audited {
	var out []store.Audited
	for i := range n {
		a := store.Audited{
			Revision: base.Revision + 1, Changed: time.UnixMicro(int64(i)), By: store.Actor{Name: "ann", Reason: "why"},
			Kind: store.AuditConfig, Name: "A", Before: []byte("1"), After: []byte("2"),
		}
		a.Hash = a.ChainHash(base.Hash)
		base = store.AuditLink{Revision: a.Revision, Hash: a.Hash}
		out = append(out, a)
	}
	return out
}

func TestChainShowsTheFirstRecordThatDoesNotFit(t *testing.T) {
	t.Parallel()
	rehash := func(all []store.Audited, i int) { all[i].Hash = all[i].ChainHash(all[i-1].Hash) }
	for _, c := range []struct {
		what     string
		spoil    func([]store.Audited) []store.Audited
		revision int64 // 0 for a chain that holds
		found    string
	}{
		{"nothing", func(all []store.Audited) []store.Audited { return all }, 0, ""},
		{"another name", func(all []store.Audited) []store.Audited { all[2].By.Name = "bob"; return all }, 3, "hash "},
		{"another reason", func(all []store.Audited) []store.Audited { all[2].By.Reason = ""; return all }, 3, "hash "},
		{"another time", func(all []store.Audited) []store.Audited {
			all[2].Changed = all[2].Changed.Add(time.Microsecond)
			return all
		}, 3, "hash "},
		{"another value", func(all []store.Audited) []store.Audited { all[4].After = []byte("3"); return all }, 5, "hash "},
		{"a text that moved on", func(all []store.Audited) []store.Audited {
			all[1].Before, all[1].After = nil, []byte("12")
			return all
		}, 2, "hash "},
		{
			"another value with its hash", func(all []store.Audited) []store.Audited { all[2].After = []byte("3"); rehash(all, 2); return all },
			4, "hash ",
		},
		{"no hash", func(all []store.Audited) []store.Audited { all[2].Hash = nil; return all }, 3, "no hash"},
		{"one is gone", func(all []store.Audited) []store.Audited { return slices.Delete(all, 2, 3) }, 3, "no such record: the next one is 4"},
		{"the first is gone", func(all []store.Audited) []store.Audited { return all[1:] }, 1, "no such record: the next one is 2"},
		{"the last is gone", func(all []store.Audited) []store.Audited { return all[:4] }, 5, "no such record, nor a later one"},
		{"all are gone", func([]store.Audited) []store.Audited { return nil }, 1, "no such record, nor a later one"},
		{"one more", func(all []store.Audited) []store.Audited {
			return append(all, chained(store.AuditLink{Revision: 5, Hash: all[4].Hash}, 1)...)
		}, 6, "a record that the store did not write"},
		{"two in another order", func(all []store.Audited) []store.Audited {
			all[1].After, all[2].After = all[2].After, all[1].After
			all[1].Changed, all[2].Changed = all[2].Changed, all[1].Changed
			return all
		}, 2, "hash "},
	} {
		check := store.NewAuditCheck(nil)
		check.From(store.AuditLink{}, 0, 5)
		for _, a := range c.spoil(chained(store.AuditLink{}, 5)) {
			check.Add(a)
		}
		have := check.End()
		switch b := have.Break; {
		case (b == nil) != (c.revision == 0), b != nil && (b.Revision != c.revision || !strings.HasPrefix(b.Found, c.found) || b.Want == ""):
			t.Errorf("%s: want record %d with %q, have %+v", c.what, c.revision, c.found, b)
		case b != nil && (have.Records > int(c.revision)-1 || have.Last != int64(have.Records)):
			t.Errorf("%s: want a head before record %d, have %+v", c.what, c.revision, have)
		}
	}
}

func TestChainBeginsBehindOlderOrRemovedRecords(t *testing.T) {
	t.Parallel()
	old := store.NewAuditCheck(nil)
	old.From(store.AuditLink{Revision: 7}, 3, 9)
	for _, a := range chained(store.AuditLink{Revision: 7}, 2) {
		old.Add(a)
	}
	if c := old.End(); c.Break != nil || c.Older != 3 || c.Records != 2 || c.Last != 9 || c.Trimmed != 0 {
		t.Errorf("want 3 older records and 2, have %+v", c)
	}

	all := chained(store.AuditLink{}, 6)
	at := func(i int) store.AuditLink { return store.AuditLink{Revision: all[i].Revision, Hash: all[i].Hash} }
	check := store.NewAuditCheck([]string{hex.EncodeToString(all[2].Hash), hex.EncodeToString(all[0].Hash)})
	check.From(at(1), 0, 6)
	check.Add(all[2])
	check.From(at(1), 0, 6) // of the next page
	check.Add(all[3])
	check.From(at(4), 0, 6) // meanwhile these were removed
	check.Add(all[5])
	want := fmt.Sprintf("%+v", store.AuditChain{
		Records: 3, Trimmed: 5, Last: 6, Head: hex.EncodeToString(all[5].Hash), Holds: []string{hex.EncodeToString(all[2].Hash)},
	})
	ends := check.End()
	if ends.Break == nil || ends.Break.Want == "" {
		t.Errorf("want a break, because no record says what was removed, have %+v", ends.Break)
	}
	ends.Break = nil
	if have := fmt.Sprintf("%+v", ends); have != want {
		t.Errorf("want %s, have %s", want, have)
	}

	back := store.NewAuditCheck(nil)
	back.From(at(3), 1, 4)
	if b := back.End().Break; b == nil || b.Revision != 4 {
		t.Errorf("want it told that a removed record is there again, have %+v", b)
	}
}
