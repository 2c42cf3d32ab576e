package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A store may be set back behind what it has acknowledged: by a failover to a replica
// that lags, or by a backup that is put in its place. It then gives numbers again that
// it gave before, so a fencing token must not come from what it remembers alone. And a
// process that knows better must not continue with it as if nothing had happened.

// nodeRandom is how many bits of a node's number are drawn by lot.
const nodeRandom = 31

// NodeNumber makes a node's number of one that the store draws, which only grows. A store
// that was set back draws the same again; the number is another one all the same.
func NodeNumber(drawn int64) int64 { return drawn<<nodeRandom | rand.Int64N(1<<nodeRandom) }

// NextNode returns the number that follows the greatest that a store has given, 0 for none.
func NextNode(last int64) int64 { return NodeNumber(last>>nodeRandom + 1) }

// NodesRemembered is for how long a store knows of a node that is gone.
const NodesRemembered = 24 * time.Hour

// A Membership remembers what a store has answered to a node, to find out when the store
// shows less than that. The zero Membership remembers nothing.
type Membership struct {
	mu    sync.Mutex // guards the following
	node  int64
	beats int64     // that were answered
	heard time.Time // when the last of them was; on the wall clock, which goes on while a machine sleeps
}

// Joined begins the membership of a number.
func (m *Membership) Joined(node int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.node, m.beats, m.heard = node, 0, time.Now().Round(0)
}

// Number is that of the last membership; 0 for none.
func (m *Membership) Number() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node
}

// Check holds an answer to a Beat of this number against what is known. It returns err, or
// an [ErrLost] when the store was set back.
func (m *Membership) Check(node int64, b Beat, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Round(0)
	switch {
	case node != m.node:
		return err
	case errors.Is(err, ErrForgotten) && now.Sub(m.heard) < NodesRemembered:
		return m.lost("it does not know node %d, which it has answered %d times", node, m.beats)
	case err != nil:
		return err
	case b.Beats <= m.beats:
		return m.lost("it knows of %d renewals of the lease of node %d, and has answered %d", b.Beats-1, node, m.beats)
	}
	m.beats, m.heard = b.Beats, now
	return nil
}

// lost says what the store has lost. The caller holds the lock.
func (m *Membership) lost(what string, args ...any) error {
	return fmt.Errorf("%w: %s, the last time at %s. It was set back, as by a failover to a replica that lagged behind, or by a backup. "+
		"Bring back the server that has everything. To go on with what is left, restart this process",
		ErrLost, fmt.Sprintf(what, args...), m.heard.UTC().Format(time.RFC3339))
}

// KnownTo reports whether a store knows at least what the process does.
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
