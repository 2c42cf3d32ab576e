package conformance

import (
	"fmt"
	"strings"
	"testing"

	"procaas/engine/store"
)

// SpoilAudit checks that [store.Audits].VerifyAudit finds records that SQL has changed. open opens
// a store, and returns a function that runs statements on its tables. horizon is the table with the
// last removed record, and the columns of its revision and its hash.
func SpoilAudit(t *testing.T, open func(t *testing.T) (store.Store, func(statements ...string)), horizon [3]string) {
	moveHorizon := func(revision int) string {
		return fmt.Sprintf("update %s set %s = %d, %s = (select hash from audit where revision = %[3]d)", horizon[0], horizon[1], revision, horizon[2])
	}
	const columns = "changed, actor, reason, kind, name, before, after, hash"
	for _, c := range []struct {
		what       string
		statements []string
		revision   int64
	}{
		{"changed", []string{"update audit set reason = 'nothing' where revision = 3"}, 3},
		{"removed", []string{"delete from audit where revision = 2"}, 2},
		{"the first removed", []string{"delete from audit where revision = 1"}, 1},
		{"the last removed", []string{"delete from audit where revision = 5"}, 5},
		{"all removed", []string{"delete from audit"}, 1},
		{"put in between", []string{
			"delete from audit where revision = 3",
			"insert into audit (revision, " + columns + ") select 3, " + columns + " from audit where revision = 2",
		}, 3},
		{
			"put in at the end",
			[]string{"insert into audit (revision, " + columns + ") select 6, " + columns + " from audit where revision = 5"},
			6,
		},
		{"without a hash", []string{strings.ReplaceAll("insert into audit (revision, #) select 6, # from audit where revision = 5", "#",
			strings.TrimSuffix(columns, ", hash"))}, 6},
		{"the horizon moved", []string{moveHorizon(3), "delete from audit where revision <= 3"}, 3},
		{"the horizon moved to the last record", []string{moveHorizon(4), "delete from audit where revision <= 4"}, 4},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s, spoil := open(t)
			var head string
			for i := range 5 {
				if _, err := s.Settings.SetConfig(t.Context(), "A", fmt.Append(nil, i), -1, store.Actor{Name: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
			verify := func() store.AuditChain {
				chains, err := s.Audits.VerifyAudit(t.Context(), []string{head})
				if err != nil || len(chains) != 1 {
					t.Fatal(chains, err)
				}
				return chains[0]
			}
			head = verify().Head
			if verify().Break != nil || len(verify().Holds) != 1 {
				t.Fatalf("want a chain that holds, have %+v", verify())
			}
			spoil(c.statements...)
			b := verify().Break
			if b == nil || b.Revision != c.revision || b.Found == "" || b.Want == "" {
				t.Errorf("want it found at %d, have %+v", c.revision, b)
			}
		})
	}
}

// SpoilTrims checks that [store.Audits].VerifyAudit finds a trim that nobody made, or that removed
// what was too young. The arguments are those of [SpoilAudit].
func SpoilTrims(t *testing.T, open func(t *testing.T) (store.Store, func(statements ...string)), horizon [3]string) {
	base := fmt.Sprintf("update %s set %s = %%d, %s = %%s", horizon[0], horizon[1], horizon[2])
	const hashOf = "(select hash from audit where revision = %d)"
	for _, c := range []struct {
		what       string
		statements []string
		revision   int64 // 0 for none
	}{
		{"nothing", nil, 0},
		{
			"more removed behind the trim",
			[]string{fmt.Sprintf(base, 6, fmt.Sprintf(hashOf, 6)), "delete from audit where revision <= 6"}, 6,
		},
		{
			"more removed before the trim",
			[]string{fmt.Sprintf(base, 5, fmt.Sprintf(hashOf, 5)), "delete from audit where revision <= 5"}, 6,
		},
		{"the horizon set back", []string{fmt.Sprintf(base, 0, "substr("+fmt.Sprintf(hashOf, 6)+", 1, 0)")}, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			s, spoil := open(t)
			for i := range 5 {
				if _, err := s.Settings.SetConfig(t.Context(), "A", fmt.Append(nil, i), -1, store.Actor{Name: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Audits.ForgetAudit(t.Context(), 0); err != nil { // removes 1 to 4, and adds 6
				t.Fatal(err)
			}
			for i := range 2 {
				if _, err := s.Settings.SetConfig(t.Context(), "B", fmt.Append(nil, i), -1, store.Actor{Name: "ann"}); err != nil {
					t.Fatal(err)
				}
			}
			spoil(c.statements...)
			chains, err := s.Audits.VerifyAudit(t.Context(), nil)
			if err != nil || len(chains) != 1 {
				t.Fatal(chains, err)
			}
			have := int64(0)
			if b := chains[0].Break; b != nil {
				have = b.Revision
			}
			if have != c.revision {
				t.Errorf("want it found at %d, have %+v of %+v", c.revision, chains[0].Break, chains[0])
			}
		})
	}
}
