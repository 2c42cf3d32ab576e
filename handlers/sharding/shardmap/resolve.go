package shardmap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"procaas/handlers/sharding/transfers"
)

// A resolver answers where keys live.
type resolver struct{ *Map }

// Lookup returns the placement of a key from memory, or from the database if memory does not have
// it.
func (m *Map) Lookup(ctx context.Context, key string) (Placement, error) {
	if p, ok := m.index.find(key); ok {
		return p, nil
	}
	p, err := resolver{m}.ask(ctx, key)
	if err == nil {
		feeder{m}.learnAsked(key, p)
	}
	return p, err
}

// Cached returns the placement of a key from memory, without a transfer or a target. ok is false if
// memory does not have it.
func (m *Map) Cached(key string) (p Placement, ok bool) {
	return m.index.find(key)
}

// ask reads a placement from the database, once for all concurrent callers.
func (m resolver) ask(ctx context.Context, key string) (Placement, error) {
	found := m.asking.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.service.patience())
		defer cancel()
		return m.Find(ctx, key)
	})
	select {
	case r := <-found:
		return r.Val.(Placement), r.Err
	case <-ctx.Done():
		return Placement{}, ctx.Err()
	}
}

// Resolve returns where a key lives and which hosts to try. It registers a key without a placement
// if the map says so and the question does not forbid it.
func (m *Map) Resolve(ctx context.Context, q transfers.ShardQuestion) (transfers.ShardAnswer, error) {
	p, err := resolver{m}.placement(ctx, q)
	if err != nil {
		return transfers.ShardAnswer{}, resolver{m}.publicError(q.Key, err)
	}
	m.note(p.Key)
	a := transfers.ShardAnswer{Map: m.ID, Key: q.Key, Placement: p.Key, Shard: p.Shard, Epoch: p.Epoch, Moving: p.Owned}
	if err := (resolver{m}).answerHosts(&a, q); err != nil {
		return transfers.ShardAnswer{}, fmt.Errorf("map %s: shard %s of key %q: %w", m.ID, p.Shard, q.Key, err)
	}
	return a, nil
}

// placement returns the placement of a key, or makes one.
func (m resolver) placement(ctx context.Context, q transfers.ShardQuestion) (Placement, error) {
	if err := m.layout.check(q.Key); err != nil {
		return Placement{}, err
	}
	p, err := m.Lookup(ctx, q.Key)
	if err == nil && p.State == Refused {
		return p, ErrUnknownKey
	}
	if (errors.Is(err, ErrUnknownKey) || err == nil && p.State == Creating) && !q.Known {
		p, err = registrar{m.Map}.register(ctx, q.Key)
	}
	if err != nil || q.AfterEpoch == 0 || p.Epoch > q.AfterEpoch {
		return p, err
	}
	return m.waitBeyond(ctx, q.Key, q.AfterEpoch)
}

// waitBeyond waits until the placement of a key has a later epoch than one that the shard has
// refused. At the end it asks the database, which may know the change already.
func (m resolver) waitBeyond(ctx context.Context, key string, epoch int64) (Placement, error) {
	ctx, cancel := context.WithTimeout(ctx, epochPatience)
	defer cancel()
	more := m.index.changes()
	// After the channel, so that a change between the two wakes the loop.
	p, err := m.Find(ctx, key)
	overdue := time.NewTicker(overdueEvery)
	defer overdue.Stop()
	for err == nil && (p.Epoch <= epoch && !m.index.merged(key, epoch) || p.State == Creating) {
		select {
		case <-more:
		case <-overdue.C:
			if p.Owned && m.thawed(ctx, p.Shard) {
				return m.Find(ctx, key)
			}
		case <-ctx.Done():
			return p, nil // unchanged; the shard will refuse it if needed
		}
		more = m.index.changes()
		if known, ok := m.index.find(key); ok && (known.Epoch > p.Epoch || known.Key != p.Key) {
			p = known
		}
	}
	if err == nil {
		feeder{m.Map}.learnAsked(key, p)
	}
	return p, err
}

// epochPatience is how long a question waits for a later epoch. It is longer than the deadline of a
// freeze.
const epochPatience = 2 * time.Second

// overdueEvery is how often a waiting question checks for an overdue freeze of the key.
const overdueEvery = 250 * time.Millisecond

// thawed ends overdue freezes of a shard, and reports whether there were any.
func (m resolver) thawed(ctx context.Context, id string) bool {
	s := m.shards[id]
	if s == nil || !s.thawing.CompareAndSwap(false, true) {
		return false
	}
	defer s.thawing.Store(false)
	n, err := m.service.Thaw(ctx, m.Map, id)
	if err != nil && ctx.Err() == nil && !notThere(err) {
		m.service.log.Warn("keys that were frozen for too long cannot be thawed", "map", m.ID, "shard", id, "error", err)
	}
	return n > 0
}

// answerHosts adds the hosts in order, and the connection string.
func (m resolver) answerHosts(a *transfers.ShardAnswer, q transfers.ShardQuestion) error {
	s := m.shards[a.Shard]
	if s == nil {
		return fmt.Errorf("%w: it is not declared here; have the pipelines of this node been read again?", transfers.ErrNoHost)
	}
	a.Class = s.declared.Class
	v := s.view.Load()
	if v == nil { // nobody has looked at the hosts yet, so the client finds the right one
		a.Stale = true
		a.Hosts, a.DSN = s.unseen, m.DSN(s.addresses, sessionAttrs(q.Mode))
		return nil
	}
	order, err := v.choose(q, rand.IntN)
	if err != nil {
		return err
	}
	a.Stale = time.Since(v.at) > staleAfter
	a.Hosts, a.DSN = v.answer(m.Map, s, q.Mode, order)
	return nil
}

// sessionAttrs is what the client requires of the server it connects to, so that an answer with
// outdated roles still works.
func sessionAttrs(mode string) string {
	switch mode {
	case transfers.ShardReplica:
		return "prefer-standby"
	case transfers.ShardAny:
		return "any"
	}
	return "read-write"
}

// publicError converts an error to one for the API.
func (m resolver) publicError(key string, err error) error {
	where := fmt.Sprintf("map %s: ", m.ID)
	named := strings.HasPrefix(err.Error(), where)
	switch {
	case errors.Is(err, ErrKey) && named:
		return err
	case errors.Is(err, ErrKey):
		return fmt.Errorf("%s%w", where, err)
	case errors.Is(err, ErrUnknownKey):
		return fmt.Errorf("%skey %q: %w", where, key, transfers.ErrUnplaced)
	case (errors.Is(err, ErrBusy) || errors.Is(err, ErrClosed)) && named:
		return fmt.Errorf("%w: %w", transfers.ErrShardBusy, err)
	case errors.Is(err, ErrBusy), errors.Is(err, ErrClosed):
		return fmt.Errorf("%skey %q: %w: %w", where, key, transfers.ErrShardBusy, err)
	}
	return err
}
