package engine_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"procaas/engine"
)

// chained makes n records behind a link.
func chained(base engine.AuditLink, n int) []engine.Audited {
	var out []engine.Audited
	for i := range n {
		a := engine.Audited{
			Revision: base.Revision + 1, Changed: time.UnixMicro(int64(i)), By: engine.Actor{Name: "ann", Reason: "why"},
			Kind: engine.AuditConfig, Name: "A", Before: []byte("1"), After: []byte("2"),
		}
		a.Hash = a.ChainHash(base.Hash)
		base = engine.AuditLink{Revision: a.Revision, Hash: a.Hash}
		out = append(out, a)
	}
	return out
}

func TestChainShowsTheFirstRecordThatDoesNotFit(t *testing.T) {
	t.Parallel()
	rehash := func(all []engine.Audited, i int) { all[i].Hash = all[i].ChainHash(all[i-1].Hash) }
	for _, c := range []struct {
		what     string
		spoil    func([]engine.Audited) []engine.Audited
		revision int64 // 0 for a chain that holds
		found    string
	}{
		{"nothing", func(all []engine.Audited) []engine.Audited { return all }, 0, ""},
		{"another name", func(all []engine.Audited) []engine.Audited { all[2].By.Name = "bob"; return all }, 3, "hash "},
		{"another reason", func(all []engine.Audited) []engine.Audited { all[2].By.Reason = ""; return all }, 3, "hash "},
		{"another time", func(all []engine.Audited) []engine.Audited {
			all[2].Changed = all[2].Changed.Add(time.Microsecond)
			return all
		}, 3, "hash "},
		{"another value", func(all []engine.Audited) []engine.Audited { all[4].After = []byte("3"); return all }, 5, "hash "},
		{"a text that moved on", func(all []engine.Audited) []engine.Audited {
			all[1].Before, all[1].After = nil, []byte("12")
			return all
		}, 2, "hash "},
		{"another value with its hash", func(all []engine.Audited) []engine.Audited { all[2].After = []byte("3"); rehash(all, 2); return all },
			4, "hash "},
		{"no hash", func(all []engine.Audited) []engine.Audited { all[2].Hash = nil; return all }, 3, "no hash"},
		{"one is gone", func(all []engine.Audited) []engine.Audited { return slices.Delete(all, 2, 3) }, 3, "no such record: the next one is 4"},
		{"the first is gone", func(all []engine.Audited) []engine.Audited { return all[1:] }, 1, "no such record: the next one is 2"},
		{"the last is gone", func(all []engine.Audited) []engine.Audited { return all[:4] }, 5, "no such record, nor a later one"},
		{"all are gone", func([]engine.Audited) []engine.Audited { return nil }, 1, "no such record, nor a later one"},
		{"one more", func(all []engine.Audited) []engine.Audited {
			return append(all, chained(engine.AuditLink{Revision: 5, Hash: all[4].Hash}, 1)...)
		}, 6, "a record that the store did not write"},
		{"two in another order", func(all []engine.Audited) []engine.Audited {
			all[1].After, all[2].After = all[2].After, all[1].After
			all[1].Changed, all[2].Changed = all[2].Changed, all[1].Changed
			return all
		}, 2, "hash "},
	} {
		check := engine.NewAuditCheck(nil)
		check.From(engine.AuditLink{}, 0, 5)
		for _, a := range c.spoil(chained(engine.AuditLink{}, 5)) {
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
	old := engine.NewAuditCheck(nil)
	old.From(engine.AuditLink{Revision: 7}, 3, 9)
	for _, a := range chained(engine.AuditLink{Revision: 7}, 2) {
		old.Add(a)
	}
	if c := old.End(); c.Break != nil || c.Older != 3 || c.Records != 2 || c.Last != 9 || c.Trimmed != 0 {
		t.Errorf("want 3 older records and 2, have %+v", c)
	}

	all := chained(engine.AuditLink{}, 6)
	at := func(i int) engine.AuditLink { return engine.AuditLink{Revision: all[i].Revision, Hash: all[i].Hash} }
	check := engine.NewAuditCheck([]string{hex.EncodeToString(all[2].Hash), hex.EncodeToString(all[0].Hash)})
	check.From(at(1), 0, 6)
	check.Add(all[2])
	check.From(at(1), 0, 6) // of the next page
	check.Add(all[3])
	check.From(at(4), 0, 6) // meanwhile these were removed
	check.Add(all[5])
	want := fmt.Sprintf("%+v", engine.AuditChain{
		Records: 3, Trimmed: 5, Last: 6, Head: hex.EncodeToString(all[5].Hash), Holds: []string{hex.EncodeToString(all[2].Hash)},
	})
	if have := fmt.Sprintf("%+v", check.End()); have != want {
		t.Errorf("want %s, have %s", want, have)
	}

	back := engine.NewAuditCheck(nil)
	back.From(at(3), 1, 4)
	if b := back.End().Break; b == nil || b.Revision != 4 {
		t.Errorf("want it told that a removed record is there again, have %+v", b)
	}
}
