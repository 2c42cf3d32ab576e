// Package clusters shows the clusters of balancers: which worker has which partition, what moved
// and why, and operators' levers. Everything is in documents of the store.
package clusters
