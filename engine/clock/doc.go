// Package clock has the time of nodes and of calls: the store's clock as a node knows it, and waits
// that end with their context, or pass at once in virtual time.
package clock
