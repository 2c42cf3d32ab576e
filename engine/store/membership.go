package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A store may be set back behind what it has acknowledged, by a failover to a lagging replica or by
// restoring a backup. Then it issues numbers again that it issued before, so a fencing token must
// not depend only on what the store remembers. A process that has seen newer data must not continue
// with such a store.

// nodeRandom is how many bits of a node's number are random.
const nodeRandom = 31

// NodeNumber makes the number of a node from one that the store draws. Drawn numbers only grow. A
// store that was set back draws the same number again, but the random bits make the node's number
// different.
func NodeNumber(drawn int64) int64 { return drawn<<nodeRandom | rand.Int64N(1<<nodeRandom) }

// NextNode returns the number after the greatest one that a store has issued. 0 means that it has
// issued none.
func NextNode(last int64) int64 { return NodeNumber(last>>nodeRandom + 1) }

// NodesRemembered is how long a store remembers a node that is gone.
const NodesRemembered = 24 * time.Hour

// A Membership remembers what a store has answered to a node, in order to detect a store that was
// set back. The zero Membership remembers nothing.
type Membership struct {
	mu    sync.Mutex // guards the following
	node  int64
	beats int64     // answered beats
	heard time.Time // when the last beat was answered, by the wall clock, which does not stop while a machine sleeps
}

// Joined starts the membership of a node with a number.
func (m *Membership) Joined(node int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node, m.beats, m.heard = node, 0, time.Now().Round(0)
}

// Number returns the number of the last membership, or 0.
func (m *Membership) Number() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// Check compares an answer to a Beat with what is known. It returns err, or an [ErrLost] if the
// store was set back. A store that fenced the node may have been set back, too: it has fenced the
// node because it lacks the beats by which the node lived.
func (m *Membership) Check(node int64, b Beat, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Round(0)
	switch {
	case node != m.node:
		return err
	case errors.Is(err, ErrForgotten) && now.Sub(m.heard) < NodesRemembered:
		return m.lost("it does not know node %d, which it has answered %d times", node, m.beats)
	case errors.Is(err, ErrFenced) && !errors.Is(err, ErrForgotten) && b.Beats < m.beats:
		return m.lost("it knows of %d renewals of the lease of node %d, and has answered %d", b.Beats, node, m.beats)
	case err != nil:
		return err
	case b.Beats <= m.beats:
		return m.lost("it knows of %d renewals of the lease of node %d, and has answered %d", b.Beats-1, node, m.beats)
	}
	m.beats, m.heard = b.Beats, now
	return nil
}

// lost returns the error for what the store has lost. The caller holds the lock.
func (m *Membership) lost(what string, args ...any) error {
	return SetBack(fmt.Sprintf(what, args...), m.heard)
}

// SetBack returns the [ErrLost] of a store that lacks something. heard is when the store last
// acknowledged it.
func SetBack(what string, heard time.Time) error {
	return fmt.Errorf("%w: %s, the last time at %s. It was set back, as by a failover to a replica that lagged behind, or by a backup. "+
		"Bring back the server that has everything. To go on with what is left, restart this process. "+
		"If it then refuses the store: procaas store adopt",
		ErrLost, what, heard.UTC().Format(time.RFC3339))
}

// KnownTo reports whether a store knows at least what this process knows.
func (m *Membership) KnownTo(nodes []NodeInfo) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		if n.Node == m.node {
			return n.Beats >= m.beats
		}
	}
	return false
}
