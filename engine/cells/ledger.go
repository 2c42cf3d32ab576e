package cells

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// A node has a number in each cell, and is known by that of the home. In the other
// cells it is called by its name and that number, so that any node can tell who it is.

// nameAt is how a node is called in a cell that is not the home.
func nameAt(name string, node int64) string { return name + "#" + strconv.FormatInt(node, 10) }

// homeOf reads such a name; 0 when it is none.
func homeOf(name string) int64 {
	at := strings.LastIndexByte(name, '#')
	n, err := strconv.ParseInt(name[at+1:], 10, 64)
	if at < 0 || err != nil {
		return 0
	}
	return n
}

// Join implements [store.Ledger].
func (s *Store) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	node, err := s.home.Ledger.Join(ctx, name, lease)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.members[node] = map[*part]int64{s.parts[0]: node}
	s.leases[node] = membership{name, lease}
	s.mu.Unlock()
	each(s.live()[1:], func(p *part) (struct{}, error) {
		if err := s.joinAt(ctx, p, node); err != nil {
			s.log.Warn("node cannot join a cell of the inbox, trying again", "cell", p.name, "error", err)
		}
		return struct{}{}, nil
	})
	return node, nil
}

// joinAt makes a node a member of a cell.
func (s *Store) joinAt(ctx context.Context, p *part, node int64) error {
	store, err := p.cell()
	if err != nil {
		return err
	}
	s.mu.Lock()
	m, ok := s.leases[node]
	_, is := s.members[node][p]
	s.mu.Unlock()
	if !ok || is {
		return nil
	}
	number, err := store.Ledger.Join(ctx, nameAt(m.name, node), m.lease)
	if err != nil {
		return p.heed(ctx, err)
	}
	p.joined(number)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[node] != nil {
		s.members[node][p] = number
		s.homes[p][number] = node
	}
	return nil
}

// A cell that could not be reached for the length of a lease has given the node's runs to
// others. The node itself is not dead, so it becomes another member of that cell: with a
// new number, what it still believes to own there is refused by its old one.

// rejoin makes a node a member of a cell again that has taken it for dead: what it owned
// there is owned by others now, or by nobody. When the home has done so too, the error
// is [store.ErrFenced].
func (s *Store) rejoin(ctx context.Context, p *part, node, number int64) error {
	if _, err := s.home.Ledger.Claim(ctx, node, 0, ""); err != nil {
		return err
	}
	db, err := p.cell()
	if err != nil {
		return err
	}
	s.mu.Lock()
	m := s.leases[node]
	s.mu.Unlock()
	if _, err := s.beatCell(ctx, p, db, number, m.lease, ""); errors.Is(err, store.ErrLost) {
		return p.heed(ctx, err)
	}
	s.mu.Lock()
	if s.members[node][p] == number {
		delete(s.members[node], p)
	}
	s.mu.Unlock()
	s.log.Warn("a cell of the inbox has taken the node for dead, joining it again", "cell", p.name, "node", node)
	return s.joinAt(ctx, p, node)
}

// isMember reports whether a node has joined by this store and not left.
func (s *Store) isMember(node int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[node] != nil
}

// numberAt returns the number of a node in a cell; 0 when it has none.
func (s *Store) numberAt(p *part, node int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.number == 0 {
		return node
	}
	return s.members[node][p]
}

// Beat implements [store.Ledger]. A cell that is away makes no beat fail; nor does it
// hold one up for long.
func (s *Store) Beat(ctx context.Context, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	if !s.isMember(node) { // by this process; the home knows whether it ever was
		_, err := s.home.Ledger.Beat(ctx, node, lease, bundle)
		return store.Beat{}, cmp.Or(err, fmt.Errorf("beat: %w", store.ErrFenced))
	}
	beats, errs := each(s.parts, func(p *part) (store.Beat, error) {
		if p.number == 0 {
			return s.home.Ledger.Beat(ctx, node, lease, bundle)
		}
		limited, cancel := context.WithTimeout(ctx, lease/4)
		defer cancel()
		return s.beatAt(limited, p, node, lease, bundle)
	})
	if errs[0] != nil {
		return store.Beat{Watched: beats[0].Watched}, errs[0]
	}
	b := beats[0]
	b.Causes = slices.Clone(b.Causes)
	for i, other := range beats[1:] {
		if errors.Is(errs[i+1], store.ErrFenced) {
			return store.Beat{}, errs[i+1]
		}
		if errs[i+1] != nil {
			continue
		}
		b = merge(b, other)
	}
	slices.Sort(b.Causes)
	b.Causes = slices.Compact(b.Causes)
	if err := s.serve(ctx, b.Revision); err != nil {
		s.log.Warn("cells of the inbox begin runs by the version before, trying again", "error", err)
	}
	return b, nil
}

// serve tells the other cells by which versions new runs begin, when that has changed in the home. Keys stay in their
// cell, so what counts for the runs of one key never goes back.
func (s *Store) serve(ctx context.Context, revision int64) error {
	if len(s.parts) == 1 || s.looked.Load() == revision {
		return nil
	}
	split, served, err := s.home.Enrolment.Serving(ctx)
	if err != nil {
		return err
	}
	_, errs := eachCell(ctx, s.live()[1:], func(_ *part, db *store.Cell) (any, error) {
		return nil, db.Enrolment.Serve(ctx, split, served)
	})
	if err = errors.Join(errs...); err == nil {
		s.looked.Store(revision)
	}
	return err
}

// merge adds to a beat of the home what one of another cell tells.
func merge(b, other store.Beat) store.Beat {
	if b.Owned < 0 || other.Owned < 0 {
		b.Owned = -1
	} else {
		b.Owned += other.Owned
	}
	b.Cancelled = append(b.Cancelled, other.Cancelled...)
	b.Moves = append(b.Moves, other.Moves...)
	b.Ready += other.Ready
	if other.Next > 0 && (b.Next == 0 || other.Next < b.Next) {
		b.Next = other.Next
	}
	b.Causes = append(b.Causes, other.Causes...)
	return b
}

// beatAt renews the lease in a cell.
func (s *Store) beatAt(ctx context.Context, p *part, node int64, lease time.Duration, bundle string) (store.Beat, error) {
	db, err := p.cell()
	if err != nil {
		s.probe(p)
		return store.Beat{}, err
	}
	if err := s.joinAt(ctx, p, node); err != nil {
		return store.Beat{}, err
	}
	number := s.numberAt(p, node)
	b, err := s.beatCell(ctx, p, db, number, lease, bundle)
	if errors.Is(err, store.ErrFenced) {
		if err := s.rejoin(ctx, p, node, number); err != nil {
			return store.Beat{}, err
		}
		b, err = s.beatCell(ctx, p, db, s.numberAt(p, node), lease, bundle)
	}
	return b, p.heed(ctx, err)
}

// beatCell renews the lease of a number in a cell, and finds out whether the cell was set back
// behind what it has answered: then nothing is asked of it any more.
func (s *Store) beatCell(ctx context.Context, p *part, db *store.Cell, number int64, lease time.Duration,
	bundle string,
) (store.Beat, error) {
	b, err := db.Ledger.Beat(ctx, number, lease, bundle)
	if err = p.memberOf(number).Check(number, b, err); errors.Is(err, store.ErrLost) {
		p.lose(err)
		s.log.Error("a cell of the inbox is refused, its keys wait", "cell", p.name, "error", err)
	}
	return b, err
}

// Claim implements [store.Ledger]. The order is that of the priorities within a cell;
// the cells get equal shares as far as they have something.
func (s *Store) Claim(ctx context.Context, node int64, limit int, bundle string) ([]store.Claimed, error) {
	if !s.isMember(node) {
		return nil, fmt.Errorf("claim: %w", store.ErrFenced)
	}
	first := int(s.turn.Add(1))
	var got []store.Claimed
	full := make([]*part, len(s.parts))
	for i := range s.parts {
		full[i] = s.parts[(first+i)%len(s.parts)]
	}
	var failed error
	// The first round gives each its share, the following what others have left. Who is
	// first changes from claim to claim, so that with few places no cell starves.
	for len(full) > 0 && limit > len(got) {
		share := max(1, (limit-len(got))/len(full))
		asked := full[:min(len(full), limit-len(got))]
		claims, errs := each(asked, func(p *part) ([]store.Claimed, error) { return s.claimAt(ctx, p, node, share, bundle) })
		rest := full[len(asked):]
		for i, p := range asked {
			got = append(got, claims[i]...)
			switch {
			case errors.Is(errs[i], store.ErrFenced), errs[i] != nil && p.number == 0:
				failed = cmp.Or(failed, errs[i])
			case errs[i] == nil && len(claims[i]) == share:
				rest = append(slices.Clip(rest), p)
			}
		}
		full = rest
		if failed != nil {
			break
		}
	}
	if failed != nil {
		return nil, failed // the beats tell the node that it owns what it has not got
	}
	slices.SortStableFunc(got, compareClaimed)
	return got, nil
}

// claimAt claims runs of a cell.
func (s *Store) claimAt(ctx context.Context, p *part, node int64, limit int, bundle string) ([]store.Claimed, error) {
	db, err := p.cell()
	if err != nil {
		return nil, err
	}
	number := s.numberAt(p, node)
	if number == 0 {
		return nil, nil // the next beat joins
	}
	runs, err := db.Ledger.Claim(ctx, number, limit, bundle)
	if errors.Is(err, store.ErrFenced) && p.number != 0 {
		if err := s.rejoin(ctx, p, node, number); err != nil {
			return nil, err
		}
		return nil, nil
	}
	for _, r := range runs {
		s.owned.Store(r.ID, p)
	}
	return runs, p.heed(ctx, err)
}

// compareClaimed orders runs of several cells as a claim of one would, as far as it can
// be told.
func compareClaimed(a, b store.Claimed) int {
	return cmp.Or(cmp.Compare(b.Event.Priority, a.Event.Priority), deadline(a).Compare(deadline(b)), a.Accepted.Compare(b.Accepted))
}

func deadline(c store.Claimed) time.Time { return c.Turn.Add(c.Event.DelayTolerance) }

// Commit implements [store.Ledger]. The changes of each cell are a transaction; those
// of a cell that is away get [store.ErrAway].
func (s *Store) Commit(ctx context.Context, node int64, changes []model.Change) ([]error, error) {
	if len(changes) == 0 {
		return []error{}, nil
	}
	if !s.isMember(node) {
		return nil, fmt.Errorf("commit: %w", store.ErrFenced)
	}
	out := make([]error, len(changes))
	byPart := map[*part][]int{}
	seen := make(map[string]bool, len(changes))
	for i := range changes {
		run := changes[i].Run
		if seen[run] {
			return nil, fmt.Errorf("commit: %w: run %s occurs twice", store.ErrRefused, run)
		}
		seen[run] = true
		p, err := s.ownerOf(ctx, run)
		if err != nil {
			out[i] = err
			continue
		}
		byPart[p] = append(byPart[p], i)
	}
	parts := slices.Collect(maps.Keys(byPart))
	emits := false
	_, errs := each(parts, func(p *part) (struct{}, error) {
		batch := make([]model.Change, len(byPart[p]))
		for n, i := range byPart[p] {
			batch[n] = changes[i]
			batch[n].Calls = s.callsAt(ctx, p, changes[i].Calls)
		}
		results, err := s.commitAt(ctx, p, node, batch)
		for n, i := range byPart[p] {
			if out[i] = err; err == nil {
				out[i] = results[n]
			}
			if out[i] == nil && changes[i].Status != model.Running || errors.Is(out[i], store.ErrStale) {
				s.owned.Delete(changes[i].Run)
			}
		}
		return struct{}{}, err
	})
	for i, err := range errs {
		switch {
		case errors.Is(err, store.ErrFenced):
			return nil, err
		case err != nil && (len(parts) == 1 && len(byPart[parts[i]]) == len(changes) && parts[i].number == 0 || !errors.Is(err, store.ErrAway)):
			return nil, err
		}
	}
	for i := range changes {
		emits = emits || len(changes[i].Emit) > 0
	}
	if emits {
		s.nudge()
	}
	return out, nil
}

// commitAt writes changes in a cell.
func (s *Store) commitAt(ctx context.Context, p *part, node int64, batch []model.Change) ([]error, error) {
	db, err := p.cell()
	if err != nil {
		return nil, err
	}
	number := s.numberAt(p, node)
	if number == 0 {
		return nil, fmt.Errorf("%w: cell %s: the node is not a member yet", store.ErrAway, p.name)
	}
	errs, err := db.Ledger.Commit(ctx, number, batch)
	if errors.Is(err, store.ErrFenced) && p.number != 0 {
		if err := s.rejoin(ctx, p, node, number); err != nil {
			return nil, err
		}
		// What the node owned there is not its own any more.
		errs = slices.Repeat([]error{store.ErrStale}, len(batch))
		err = nil
	}
	return errs, p.heed(ctx, err)
}

// ownerOf finds the cell of a run that a node of this process owns.
func (s *Store) ownerOf(ctx context.Context, run string) (*part, error) {
	if p, ok := s.owned.Load(run); ok {
		return p.(*part), nil
	}
	_, p, err := s.find(ctx, run)
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.ErrStale
	}
	return p, err
}

// callsAt leaves out the runs of other cells that have not ended: the cell would take
// one that it does not know for one that is over.
func (s *Store) callsAt(ctx context.Context, p *part, calls []string) (out []string) {
	for _, run := range calls {
		r, at, err := s.find(ctx, run)
		if err == nil && at != p && !r.Status.Ended() || errors.Is(err, store.ErrAway) {
			continue
		}
		out = append(out, run)
	}
	return out
}

// Leave implements [store.Ledger].
func (s *Store) Leave(ctx context.Context, node int64, keep []string) error {
	if !s.isMember(node) {
		return s.home.Ledger.Leave(ctx, node, keep)
	}
	_, errs := each(s.parts, func(p *part) (struct{}, error) {
		db, err := p.cell()
		if number := s.numberAt(p, node); err == nil && number != 0 {
			err = p.heed(ctx, db.Ledger.Leave(ctx, number, keep))
		}
		if p.number != 0 && (errors.Is(err, store.ErrAway) || errors.Is(err, store.ErrFenced)) {
			err = nil // its lease ends there
		}
		return struct{}{}, err
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if keep == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.members, node)
		delete(s.leases, node)
		for _, numbers := range s.homes {
			maps.DeleteFunc(numbers, func(_, home int64) bool { return home == node })
		}
	}
	return nil
}

// Nodes implements [store.Ledger].
func (s *Store) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	all, errs := eachCell(ctx, s.parts, func(_ *part, db *store.Cell) ([]store.NodeInfo, error) { return db.Ledger.Nodes(ctx) })
	if errs[0] != nil {
		return nil, errs[0]
	}
	nodes := all[0]
	for i, others := range all[1:] {
		for _, other := range others {
			home := homeOf(other.Name)
			s.mu.Lock()
			s.homes[s.parts[i+1]][other.Node] = home
			s.mu.Unlock()
			if at := slices.IndexFunc(nodes, func(n store.NodeInfo) bool { return n.Node == home }); at >= 0 {
				nodes[at].Runs += other.Runs
			}
		}
	}
	return nodes, nil
}

// homeAt returns the number in the home of a node of a cell; 0 when it is not known.
func (s *Store) homeAt(ctx context.Context, p *part, number int64) int64 {
	if number == 0 || p.number == 0 {
		return number
	}
	for try := 0; ; try++ {
		s.mu.Lock()
		home, ok := s.homes[p][number]
		s.mu.Unlock()
		if ok || try == 1 {
			return home
		}
		if _, err := s.Nodes(ctx); err != nil {
			return 0
		}
	}
}
