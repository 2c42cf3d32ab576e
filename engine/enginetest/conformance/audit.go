package conformance

import (
	"fmt"
	"strings"
	"testing"

	"procaas/engine/store"
)

// SpoilAudit checks that [store.Audits].VerifyAudit finds records that SQL has changed. open opens
// a store, and returns a function that runs statements on its tables.
func SpoilAudit(t *testing.T, open func(t *testing.T) (store.Store, func(statements ...string))) {
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
			if head = verify().Head; verify().Break != nil || len(verify().Holds) != 1 {
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
