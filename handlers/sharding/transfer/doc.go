// Package transfer moves the rows of one key from one PostgreSQL server to another
// while they are written to.
//
// A [Mover] knows two shards, the tables of a colocation group, and the values of
// the key. Each of its steps is idempotent: what it has reached is kept on the
// shards themselves, so that any process may go on where another one died.
//
//	Plan     refuses what could not be moved: reasons, and nothing is changed
//	Copy     a snapshot of the rows, and the slot whose stream goes on from it
//	Stream   applies what has changed since, until the target keeps up
//	Verify   compares all rows of both sides as of one position of the stream
//	Cutover  freezes the key, drains the stream, opens the target, seals the source
//	Retire   says in the source where the key has gone
//	Cleanup  deletes the rows of the side that lost the key, in small batches
//
// The window in which the key cannot be written is that of Cutover. The freeze is a
// transaction in the stream itself: when it arrives, everything before it has.
//
// Three things keep two shards from both taking writes of a key, whatever crashes:
//
//   - The target takes writes of the next epoch only, which nobody has before the map
//     has switched.
//   - A frozen source thaws by itself after a deadline, by its own clock. Before the
//     map may switch, the freeze is sealed, which fails once the deadline has passed;
//     a sealed source never thaws by itself.
//   - The map switches by comparing the epoch and the owner's token, so a coordinator
//     that was taken for dead changes nothing.
package transfer
