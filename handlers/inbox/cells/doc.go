// Package cells makes one store of several databases, the cells of an inbox.
//
// The home is the cell with everything that all nodes share: definitions, settings, tokens,
// documents, and the map. The map assigns each slot of keys to a cell. A run lives in the cell of
// its key, with everything that the key needs. So order, ids and shared state are the work of one
// database, as they are without cells. An event that a run emits to a key of another cell goes
// there through an outbox.
//
// A process may use an old map. The cell decides: in the transaction that accepts an event, it
// refuses a slot that it does not have. Then the process reads the map again.
//
// These are the types of the package:
//
//   - [Chart] is the map, a document.
//   - directory knows the map and the cells, and follows both.
//   - members makes nodes members of cells: accepting, claiming, committing, the outbox.
//   - runs joins what people see, and changes runs where they are.
//   - moves moves slots, and takes over the moves of dead processes.
//   - [Tasks] is the queue.
package cells
