// Package replay runs recorded runs again: by the definition that they went by, and by another one. It compares both, and
// gathers what differs by its cause.
//
// It drives the core of the engine in virtual time, without a store and without a network. Calls get the answers that the
// recording has of them. Requests are not recorded: they follow from the definition, so that only answers are kept.
package replay
