// Package replay runs recorded runs again, with their own definition and with another one. It
// compares both, and groups the differences by cause.
//
// It drives the core of the engine in virtual time, without a store and a network. Calls get their
// recorded answers. Requests are not recorded, because they follow from the definition. A [Shadow]
// replays the ended runs of a node with a version in the shadow.
package replay
