// Package cells makes one store of several databases, the cells of an inbox.
//
// The home is the store that knows what all nodes have in common: definitions,
// settings, tokens, the audit, documents, and the map that gives each slot of keys to a
// cell. It is a cell itself. A run lives in the cell of its key, with all that its key
// needs, so that order, ids and shared state are the work of one database, as they are
// without cells. What a run emits to keys of other cells goes there through an outbox.
//
// The map is a hint. What counts is what a cell says in the transaction that accepts an
// event: it refuses what it has not, and then the map is read again.
package cells
