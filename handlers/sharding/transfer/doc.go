// Package transfer moves the rows of one key from one PostgreSQL server to another while services
// write to them.
//
// A [Mover] knows two shards, the tables of a colocation group, and the values of the key. Each of
// its steps is idempotent. The shards themselves store the progress, so any process may continue
// after another one has died.
//
//	Plan     refuses what cannot be moved, with reasons, and changes nothing
//	Copy     copies a snapshot of the rows, and creates the slot of the stream
//	Stream   applies later changes, until the target keeps up
//	Verify   compares all rows of both sides as of one position of the stream
//	Cutover  freezes the key, drains the stream, opens the target, seals the source
//	Retire   records on the source where the key has gone
//	Cleanup  deletes the rows on the side that lost the key, in small batches
//
// Only during Cutover is the key not writable. The freeze is a transaction in the stream itself:
// when it arrives, everything before it has arrived.
//
// Three things prevent that both shards accept writes of a key, even when processes crash:
//
//   - The target accepts only writes of the next epoch, which no client has before the map has
//     switched.
//   - A frozen source thaws by itself after a deadline, by its own clock. Before the map may
//     switch, the freeze is sealed, which fails after the deadline. A sealed source never thaws by
//     itself.
//   - The map switches by comparing the epoch and the owner's token, so a coordinator that was
//     considered dead changes nothing.
package transfer
