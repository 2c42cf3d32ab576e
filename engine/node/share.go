package node

import (
	"time"

	"procaas/engine/clock"
)

// Nodes even out what waits: of many events that come to one node, it keeps what it would
// have in hand if all nodes had as much as they can. Beyond that it takes a little at a time,
// and lets the others look first.

const (
	shareLeast = 32                    // runs that a node takes whatever the others do
	sharePart  = 16                    // that it takes at once beyond its share
	shareGap   = 20 * time.Millisecond // before each of those, so that idle nodes are faster
)

// left is how many runs the node may take without looking at the others: what it has not taken
// of its share, 0 when it has more than that. A node that is alone shares with nobody.
func (n *node) left() int {
	most, nodes := n.d.MaxInFlight, int(n.d.Guard.Nodes.Load())
	if nodes < 2 {
		return most
	}
	share := min(most, max(most/nodes, shareLeast))
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(0, share-len(n.jobs)-n.asked+min(n.ending, share))
}

// wanted is how many runs to claim: what is left of the share, or a little more after the
// others have had the time to be faster.
func (n *node) wanted() int {
	if left := n.left(); left > 0 {
		return left
	}
	clock.Pause(n.ctx, shareGap)
	return max(n.left(), sharePart)
}
