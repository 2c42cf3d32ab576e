package conformance

import (
	"errors"
	"slices"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A member is a node of the store. It fails the test at the first unexpected result, as its probe
// does.
type member struct {
	*probe
	id int64
}

// join adds a node whose lease is longer than any test.
func (p *probe) join() *member {
	p.Helper()
	id, err := p.Ledger.Join(p.Context(), p.Name(), lease)
	if err != nil {
		p.Fatalf("join: %v", err)
	}
	return &member{p, id}
}

// leave releases the runs of the node, except for those to keep. If keep is nil, the node leaves.
func (n *member) leave(keep []string) {
	n.Helper()
	n.must(n.Ledger.Leave(n.Context(), n.id, keep))
}

func (n *member) beat() (b store.Beat) {
	n.Helper()
	n.eventually("a beat that counts", func() bool {
		b = n.beatOnce()
		return b.Owned >= 0
	})
	return b
}

// beatOnce is one beat. If the machine is busy, the store may skip its counts.
func (n *member) beatOnce() store.Beat {
	n.Helper()
	b, err := n.Ledger.Beat(n.Context(), n.id, lease, "served")
	if err != nil {
		n.Fatalf("beat of node %d: %v", n.id, err)
	}
	return b
}

// waitReady beats, as often as the store asks, until runs are ready.
func (n *member) waitReady() {
	n.Helper()
	n.eventually("a ready run", func() bool { return n.beat().Ready > 0 })
}

func (n *member) claim(limit int) []store.Claimed {
	n.Helper()
	runs, err := n.Ledger.Claim(n.Context(), n.id, limit, "")
	if err != nil {
		n.Fatalf("claim for node %d: %v", n.id, err)
	}
	for i := range runs {
		n.must(runs[i].Unfold())
	}
	return runs
}

// claimOne claims one run, which must have this id.
func (n *member) claimOne(id string) store.Claimed {
	n.Helper()
	runs := n.claim(1)
	if len(runs) != 1 || runs[0].ID != id {
		n.Fatalf("claim: want run %s, have %v", id, idsOf(runs))
	}
	return runs[0]
}

// wantClaims claims all ready runs and compares their order.
func (n *member) wantClaims(want ...string) []store.Claimed {
	n.Helper()
	runs := n.claim(1000)
	if have := idsOf(runs); !slices.Equal(have, want) {
		n.Fatalf("claim: want runs %v, have %v", want, have)
	}
	return runs
}

// commit commits changes that must all succeed.
func (n *member) commit(changes ...model.Change) {
	n.Helper()
	for i, err := range n.commitErrs(changes...) {
		if err != nil {
			n.Fatalf("commit of run %s as %s: %v", changes[i].Run, changes[i].Status, err)
		}
	}
}

func (n *member) commitErrs(changes ...model.Change) []error {
	n.Helper()
	errs, err := n.Ledger.Commit(n.Context(), n.id, changes)
	if err != nil {
		n.Fatalf("commit: %v", err)
	}
	if len(errs) != len(changes) {
		n.Fatalf("commit: want %d errors, have %d", len(changes), len(errs))
	}
	return errs
}

// tryCommit returns the errors of a commit.
func (n *member) tryCommit(changes ...model.Change) error {
	errs, err := n.Ledger.Commit(n.Context(), n.id, changes)
	return errors.Join(append(errs, err)...)
}

// finish ends claimed runs successfully.
func (n *member) finish(runs ...store.Claimed) {
	n.Helper()
	var changes []model.Change
	for _, c := range runs {
		changes = append(changes, change(c, model.Succeeded))
	}
	n.commit(changes...)
}

func idsOf(runs []store.Claimed) []string {
	ids := []string{}
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}
