// Package seen keeps what nodes have seen: an hour of samples of this node for charts, and a day of evidence of
// incidents of all nodes, in the store.
//
// It knows nothing of pages: what was wrong is handed in.
package seen
