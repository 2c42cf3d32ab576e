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
	"sync"
	"sync/atomic"
	"time"

	"procaas/engine/model"
	"procaas/engine/store"
)

// Members makes the nodes of this process members of all cells. A node has a number in each cell, and is known by that of the home.
// In the other cells its name has that number at its end, so that every process can tell which node it is.
type members struct {
	*directory

	owned   sync.Map // run → *part, for the runs that nodes of this process own
	turn    atomic.Uint32
	looked  atomic.Int64  // the revision of the settings when serve looked last
	emitted chan struct{} // there may be something in an outbox

	mu    sync.Mutex // guards the following
	nodes map[int64]*node
	homes map[seat]int64 // the numbers of nodes of all processes in the home
}

// A node is a node of this process.
type node struct {
	name  string
	lease time.Duration
	at    map[*part]*member // in the cells that it has joined
}

// A member is a node in one cell.
type member struct {
	number int64
	seen   store.Membership // what the cell answered to the number
}

// A seat is the number of a node in a cell.
type seat struct {
	at     *part
	number int64
}

// nameAt returns the name of a node in a cell other than the home.
func nameAt(name string, node int64) string { return name + "#" + strconv.FormatInt(node, 10) }

// homeOf reads the number from such a name; 0 if it has none.
func homeOf(name string) int64 {
	at := strings.LastIndexByte(name, '#')
	n, err := strconv.ParseInt(name[at+1:], 10, 64)
	if at < 0 || err != nil {
		return 0
	}
	return n
}

// Join implements [store.Ledger].
func (s *members) Join(ctx context.Context, name string, lease time.Duration) (int64, error) {
	number, err := s.home.Ledger.Join(ctx, name, lease)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.nodes[number] = &node{name, lease, map[*part]*member{s.parts[0]: {number: number}}}
	s.mu.Unlock()
	each(s.live()[1:], func(p *part) (any, error) {
		if err := s.joinAt(ctx, p, number); err != nil {
			s.log.Warn("node cannot join a cell of the inbox, trying again", "cell", p.name, "error", err)
		}
		return nil, nil
	})
	return number, nil
}

// joinAt makes a node a member of a cell, unless it is one.
func (s *members) joinAt(ctx context.Context, p *part, number int64) error {
	s.mu.Lock()
	n := s.nodes[number]
	joined := n == nil || n.at[p] != nil
	s.mu.Unlock()
	return p.use(ctx, func(db *store.Cell) error {
		if joined {
			return nil
		}
		there, err := db.Ledger.Join(ctx, nameAt(n.name, number), n.lease)
		if err != nil {
			return err
		}
		m := &member{number: there}
		m.seen.Joined(there)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.nodes[number] == n {
			n.at[p] = m
			s.homes[seat{p, there}] = number
		}
		return nil
	})
}

// rejoin makes a node a member of a cell again that took it for dead, because the node did not reach it for the length of a
// lease. The node itself is alive. It gets a new number, so the cell refuses what the node does with the runs that others have by
// now. If the home took the node for dead, too, the error is [store.ErrFenced].
func (s *members) rejoin(ctx context.Context, p *part, db *store.Cell, number int64, m *member) error {
	if err := s.parts[0].use(ctx, func(home *store.Cell) error {
		_, err := home.Ledger.Claim(ctx, number, 0, "")
		return err
	}); err != nil {
		return err
	}
	s.mu.Lock()
	n := s.nodes[number]
	s.mu.Unlock()
	if n == nil || m == nil {
		return store.ErrFenced
	}
	if _, err := s.beatCell(ctx, p, db, m, n.lease, ""); errors.Is(err, store.ErrLost) {
		return err
	}
	s.mu.Lock()
	if n.at[p] == m {
		delete(n.at, p)
	}
	s.mu.Unlock()
	s.log.Warn("a cell of the inbox has taken the node for dead, joining it again", "cell", p.name, "node", number)
	return s.joinAt(ctx, p, number)
}

// isMember reports whether a node has joined by this store and not left.
func (s *members) isMember(number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[number] != nil
}

// memberAt returns a node as a member of a cell, or nil.
func (s *members) memberAt(p *part, number int64) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[number]; n != nil {
		return n.at[p]
	}
	return nil
}

// errNoMember reports that a node is no member of a cell yet. The next beat joins it.
var errNoMember = errors.New("the node is not a member yet")

// asMember does something in a cell for a node, with the number that the node has there. If the cell took the node for dead, the
// node joins it again, and the result is that of fenced.
func asMember[T any](ctx context.Context, s *members, p *part, number int64, do func(*store.Cell, *member) (T, error),
	fenced func(*store.Cell) (T, error),
) (out T, err error) {
	return use(ctx, p, func(db *store.Cell) (T, error) {
		m := s.memberAt(p, number)
		if m == nil {
			return out, fmt.Errorf("%w: cell %s: %w", store.ErrAway, p.name, errNoMember)
		}
		out, err = do(db, m)
		if p.number == 0 || !errors.Is(err, store.ErrFenced) {
			return out, err
		}
		if err := s.rejoin(ctx, p, db, number, m); err != nil {
			return out, err
		}
		return fenced(db)
	})
}

// Beat implements [store.Ledger]. A cell that is away makes no beat fail, and no beat waits for it for long.
func (s *members) Beat(ctx context.Context, number int64, lease time.Duration, bundle string) (store.Beat, error) {
	if !s.isMember(number) { // of this process; the home knows whether it ever was one
		b, err := s.home.Ledger.Beat(ctx, number, lease, bundle)
		return store.Beat{Beats: b.Beats}, cmp.Or(err, fmt.Errorf("renew the lease: %w", store.ErrFenced))
	}
	beats, errs := each(s.parts, func(p *part) (store.Beat, error) {
		if p.number == 0 {
			return s.home.Ledger.Beat(ctx, number, lease, bundle)
		}
		limited, cancel := context.WithTimeout(ctx, lease/4)
		defer cancel()
		return s.beatAt(limited, p, number, lease, bundle)
	})
	if errs[0] != nil {
		return store.Beat{Watched: beats[0].Watched, Beats: beats[0].Beats}, errs[0]
	}
	b := beats[0]
	b.Causes = slices.Clone(b.Causes)
	for i, other := range beats[1:] {
		switch err := errs[i+1]; {
		case errors.Is(err, store.ErrFenced):
			return store.Beat{Beats: b.Beats}, err
		case err == nil:
			b = merge(b, other)
		}
	}
	slices.Sort(b.Causes)
	b.Causes = slices.Compact(b.Causes)
	if err := s.serve(ctx, b.Revision); err != nil {
		s.log.Warn("cells of the inbox begin runs by the version before, trying again", "error", err)
	}
	return b, nil
}

// merge adds to a beat of the home what another cell says.
func merge(b, other store.Beat) store.Beat {
	if b.Owned < 0 || other.Owned < 0 {
		b.Owned = -1
	} else {
		b.Owned += other.Owned
		b.Running += other.Running
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

// serve tells the other cells by which versions new runs begin, when that has changed in the home. Keys stay in their cell, so the
// version for the runs of one key never goes back.
func (s *members) serve(ctx context.Context, revision int64) error {
	if s.looked.Load() == revision {
		return nil
	}
	err := s.serveNow(ctx)
	if err == nil {
		s.looked.Store(revision)
	}
	return err
}

func (s *members) serveNow(ctx context.Context) error {
	if len(s.parts) == 1 {
		return nil
	}
	split, served, err := s.home.Enrolment.Serving(ctx)
	if err != nil {
		return err
	}
	_, errs := eachCell(ctx, s.live()[1:], func(_ *part, db *store.Cell) (any, error) {
		return nil, db.Enrolment.Serve(ctx, split, served)
	})
	return errors.Join(errs...)
}

// served tells the other cells at once what a change in the home serves. If that fails, the next beat does it.
func (s *members) served(ctx context.Context, changed error) {
	if changed == nil {
		if err := s.serveNow(ctx); err != nil {
			s.log.Warn("cells of the inbox begin runs by the version before, trying again", "error", err)
		}
	}
}

// Bundles are the definitions of the home, whose changes count in all cells at once.
type bundles struct {
	store.Bundles
	*members
}

// Activate implements [store.Bundles].
func (b bundles) Activate(ctx context.Context, hash string, files []byte, onlyNew bool, by store.Actor) (string, error) {
	current, err := b.Bundles.Activate(ctx, hash, files, onlyNew, by)
	b.served(ctx, err)
	return current, err
}

// Promote implements [store.Bundles].
func (b bundles) Promote(ctx context.Context, old, hash string, by store.Actor) (bool, error) {
	done, err := b.Bundles.Promote(ctx, old, hash, by)
	b.served(ctx, err)
	return done, err
}

// Degradation is that of the home. Its conclusions change what all cells serve.
type degradation struct {
	store.Degradation
	*members
}

// Conclude implements [store.Degradation].
func (d degradation) Conclude(ctx context.Context, c store.Conclusion) error {
	err := d.Degradation.Conclude(ctx, c)
	if c.Serve != (model.Split{}) {
		d.served(ctx, err)
	}
	return err
}

// beatAt renews the lease in a cell.
func (s *members) beatAt(ctx context.Context, p *part, number int64, lease time.Duration, bundle string) (store.Beat, error) {
	if err := s.joinAt(ctx, p, number); err != nil {
		s.probe(p)
		return store.Beat{}, err
	}
	return asMember(ctx, s, p, number,
		func(db *store.Cell, m *member) (store.Beat, error) { return s.beatCell(ctx, p, db, m, lease, bundle) },
		func(db *store.Cell) (store.Beat, error) {
			m := s.memberAt(p, number)
			if m == nil {
				return store.Beat{}, store.ErrFenced
			}
			return s.beatCell(ctx, p, db, m, lease, bundle)
		})
}

// beatCell renews the lease of a member. If the cell forgot something that it had answered, nothing is asked of it any more.
func (s *members) beatCell(
	ctx context.Context, p *part, db *store.Cell, m *member, lease time.Duration, bundle string,
) (store.Beat, error) {
	b, err := db.Ledger.Beat(ctx, m.number, lease, bundle)
	if err = m.seen.Check(m.number, b, err); errors.Is(err, store.ErrLost) {
		p.leave(err)
		s.log.Error("a cell of the inbox is refused, its keys wait", "cell", p.name, "error", err)
	}
	return b, err
}

// Claim implements [store.Ledger]. Within a cell, the order is that of the priorities. All cells have equal shares, as far as they
// have ready runs. The first cell changes from claim to claim, so that a node with little room starves no cell.
func (s *members) Claim(ctx context.Context, number int64, limit int, bundle string) ([]store.Claimed, error) {
	if !s.isMember(number) {
		return nil, fmt.Errorf("claim: %w", store.ErrFenced)
	}
	first := int(s.turn.Add(1)) % len(s.parts)
	var got []store.Claimed
	// The first round gives each cell its share. The next ones give out what others left.
	for full := slices.Concat(s.parts[first:], s.parts[:first]); len(full) > 0 && limit > len(got); {
		share := max(1, (limit-len(got))/len(full))
		asked := full[:min(len(full), limit-len(got))]
		claims, errs := each(asked, func(p *part) ([]store.Claimed, error) { return s.claimAt(ctx, p, number, share, bundle) })
		full = slices.Clip(full[len(asked):])
		for i, p := range asked {
			got = append(got, claims[i]...)
			switch err := errs[i]; {
			case errors.Is(err, store.ErrFenced), err != nil && p.number == 0:
				return nil, err // beats tell the node that it owns the runs that it did not get
			case err == nil && len(claims[i]) == share:
				full = append(full, p)
			}
		}
	}
	slices.SortStableFunc(got, func(a, b store.Claimed) int {
		deadline := func(c store.Claimed) time.Time { return c.Turn.Add(c.Event.DelayTolerance) }
		return cmp.Or(cmp.Compare(b.Event.Priority, a.Event.Priority), deadline(a).Compare(deadline(b)), a.Accepted.Compare(b.Accepted))
	})
	return got, nil
}

// claimAt claims runs of a cell.
func (s *members) claimAt(ctx context.Context, p *part, number int64, limit int, bundle string) ([]store.Claimed, error) {
	runs, err := asMember(ctx, s, p, number,
		func(db *store.Cell, m *member) ([]store.Claimed, error) {
			return db.Ledger.Claim(ctx, m.number, limit, bundle)
		},
		func(*store.Cell) ([]store.Claimed, error) { return nil, nil })
	for _, r := range runs {
		s.owned.Store(r.ID, p)
	}
	return runs, err
}

// Commit implements [store.Ledger]. The changes of each cell are one transaction. Those of a cell that is away get [store.ErrAway].
func (s *members) Commit(ctx context.Context, number int64, changes []model.Change) ([]error, error) {
	if len(changes) == 0 {
		return []error{}, nil
	}
	if !s.isMember(number) {
		return nil, fmt.Errorf("commit: %w", store.ErrFenced)
	}
	b := newBatch[model.Change, error](changes)
	at := make(map[string]*part, len(changes))
	emits := false
	for i, c := range changes {
		if _, twice := at[c.Run]; twice {
			return nil, fmt.Errorf("commit: %w: run %s occurs twice", store.ErrRefused, c.Run)
		}
		at[c.Run], b.out[i] = s.ownerOf(ctx, c.Run)
		emits = emits || len(c.Emit) > 0
	}
	b.keep(func(err error) bool { return err == nil })
	b.of = func(i int) *part { return at[changes[i].Run] }
	b.failed = func(err error) error { return err }
	b.do = func(p *part, some []model.Change) ([]error, error) {
		for i := range some {
			some[i].Calls = s.callsAt(ctx, p, some[i].Calls)
		}
		return asMember(ctx, s, p, number,
			func(db *store.Cell, m *member) ([]error, error) { return db.Ledger.Commit(ctx, m.number, some) },
			func(*store.Cell) ([]error, error) { return slices.Repeat([]error{store.ErrStale}, len(some)), nil }) // others own the runs
	}
	err := b.runWhole()
	for i, c := range changes {
		if b.out[i] == nil && c.Status != model.Running || errors.Is(b.out[i], store.ErrStale) {
			s.owned.Delete(c.Run)
		}
	}
	if err != nil {
		return nil, err
	}
	if emits {
		s.nudge()
	}
	return b.out, nil
}

// find reads a run, and returns its cell. While a slot moves, two cells may have its runs. Then the map decides.
func (s *members) find(ctx context.Context, id string) (store.RunRecord, *part, error) {
	all := s.live()
	parts := all
	if p, ok := s.owned.Load(id); ok {
		parts = []*part{p.(*part)}
	}
	for {
		found, errs := eachCell(ctx, parts, func(_ *part, db *store.Cell) (store.RunRecord, error) { return db.Runs.Run(ctx, id) })
		at, failed := -1, error(nil)
		for i, err := range errs {
			switch {
			case err == nil && (at < 0 || s.partOf(found[i].Key) == parts[i]):
				at = i
			case err != nil && !errors.Is(err, store.ErrNotFound):
				failed = err
			}
		}
		switch {
		case at >= 0:
			r := found[at]
			r.Node = s.homeAt(ctx, parts[at], r.Node)
			return r, parts[at], nil
		case failed != nil:
			return store.RunRecord{}, nil, failed
		case len(parts) == len(all):
			return store.RunRecord{}, nil, store.ErrNotFound
		}
		parts = all
	}
}

// ownerOf returns the cell of a run that a node of this process owns.
func (s *members) ownerOf(ctx context.Context, run string) (*part, error) {
	if p, ok := s.owned.Load(run); ok {
		return p.(*part), nil
	}
	_, p, err := s.find(ctx, run)
	if errors.Is(err, store.ErrNotFound) {
		return nil, store.ErrStale
	}
	return p, err
}

// callsAt leaves out the runs of other cells that have not ended. The cell does not know them, and would take them for ended ones.
func (s *members) callsAt(ctx context.Context, p *part, calls []string) (out []string) {
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
func (s *members) Leave(ctx context.Context, number int64, keep []string) error {
	if !s.isMember(number) {
		return s.home.Ledger.Leave(ctx, number, keep)
	}
	_, errs := eachCell(ctx, s.parts, func(p *part, db *store.Cell) (any, error) {
		if m := s.memberAt(p, number); m != nil {
			return nil, db.Ledger.Leave(ctx, m.number, keep)
		}
		return nil, nil
	})
	for i, err := range errs {
		if i > 0 && (errors.Is(err, store.ErrAway) || errors.Is(err, store.ErrFenced)) {
			errs[i] = nil // its lease ends there
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if keep == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.nodes, number)
		maps.DeleteFunc(s.homes, func(_ seat, home int64) bool { return home == number })
	}
	return nil
}

// Nodes implements [store.Ledger].
func (s *members) Nodes(ctx context.Context) ([]store.NodeInfo, error) {
	all, errs := eachCell(ctx, s.parts, func(_ *part, db *store.Cell) ([]store.NodeInfo, error) { return db.Ledger.Nodes(ctx) })
	if errs[0] != nil {
		return nil, errs[0]
	}
	nodes := all[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, others := range all[1:] {
		for _, other := range others {
			home := homeOf(other.Name)
			s.homes[seat{s.parts[i+1], other.Node}] = home
			if at := slices.IndexFunc(nodes, func(n store.NodeInfo) bool { return n.Node == home }); at >= 0 {
				nodes[at].Runs += other.Runs
			}
		}
	}
	return nodes, nil
}

// homeAt returns the number in the home of a node of a cell; 0 if nobody knows it.
func (s *members) homeAt(ctx context.Context, p *part, number int64) int64 {
	if number == 0 || p.number == 0 {
		return number
	}
	for try := 0; ; try++ {
		s.mu.Lock()
		home, ok := s.homes[seat{p, number}]
		s.mu.Unlock()
		if ok || try == 1 {
			return home
		}
		if _, err := s.Nodes(ctx); err != nil {
			return 0
		}
	}
}
