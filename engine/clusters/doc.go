// Package clusters shows the clusters of balancers: who has which partition, what moved and why, and
// the levers that operators pull. All of it is documents in the store.
package clusters
