// Package shardmap keeps the map from keys to shards, and watches the shards.
//
// A map (shard-maps: in the files) says which shard, a PostgreSQL cluster, has the rows of a key.
// Services ask for it by HTTP or with package client, and connect to the shard themselves. No proxy
// is in the path of the data.
//
// # Contract of the map
//
// A [Placement] is the unit that lives on one shard and moves as a whole. Its Key is
//
//   - the key itself, as [Key.String] writes it: "42", or "42/inbox" with two parts. The characters
//     % / # [ within a part are written %25 %2F %23 %5B.
//   - "#7" for slot 7 of the strategy slots.
//   - "[" and the lower bound for a stretch of the strategy range.
//
// [Map.Lookup] finds the placement of a key: the longest placement among the key and its first
// parts, then the slot or the stretch. [Map.Rows] says which rows of a table belong to a placement.
// A table may have columns only for the first parts of a key. Then its rows belong to the longest
// placement of those parts, and never to one with more parts. So a service asks, and calls the
// guard, with as many parts as the table has columns for.
//
// Each placement has an epoch, which grows with each move. Each shard has a fence for each
// placement that it has or had: a row of procaas.fences. A writer calls
//
//	select procaas.guard(map, placement, epoch)
//
// first in each transaction, with the placement and the epoch of the answer. PC001 means that the
// placement is not here, frozen, or at another epoch. PC002 means that the server was promoted and
// its fences were not compared with the map yet. In both cases the client rolls back, asks the map
// again and retries. With after-epoch, the question waits for the switch. 40001 is retried as
// always.
//
// Guarantees:
//
//   - An epoch in an answer was handed out after its change had committed. So a target may be
//     opened with the next epoch before the switch.
//   - Epochs are never used twice. An aborted transfer leaves its epoch unused.
//   - A fence never goes back to an older epoch, and is never deleted.
//
// # Contract of a transfer
//
// A transfer of a placement has these steps. All of them are idempotent: after a crash, the same
// calls with the same id continue.
//
//  1. t, err := m.BeginTransfer(ctx, [Begin]{Key, Target, Transfer: id}) takes the placement over.
//     It returns a new owner token and the next epoch, t.Next. The error is [ErrBusy] if another
//     transfer has the placement. The same id takes over from itself with a new token, which fences
//     out a coordinator that was considered dead.
//  2. Rows are copied and streamed.
//  3. The freeze, procaas.freeze, is a transaction on the source. It thaws by itself after some
//     milliseconds, so that the key stays writable if the coordinator dies.
//  4. When the stream is applied up to the freeze, two things follow. [WriteFence] with State
//     [Active] and epoch t.Next opens the target, in the transaction that applies the freeze.
//     procaas.seal on the source keeps the freeze from thawing, and fails if it has already thawed.
//  5. m.Switch(ctx, t) is the commit point, a compare-and-swap on epoch and owner. [ErrLost] means
//     that nothing has changed and never will with this token. If the outcome is unknown,
//     [Map.Read] shows it. After the switch there is only the way forward.
//  6. [WriteFence] on the source with State [Moved], epoch t.Next and Target.
//
// To give up before step 5: m.Abort(ctx, t) FIRST, then fence the target Closed at t.Next, then the
// source [Active] at t.Epoch. After Abort no Switch with the token can succeed, so the source may
// accept writes again. Package transfer does steps 2 to 6, except for the switch itself. There
// procaas.claim invalidates what older tokens have frozen. A rollback after the switch is a
// transfer in the other direction, with the next epoch.
//
// Reservations of keys that are still being registered cannot be transferred ([ErrBusy]). Server
// processes reach shards with [Service.Connect].
//
// # What enroll installs on a shard
//
// The schema procaas with the fences, fences for the placements that the map has there, and for
// each map up to [Buckets] publications. [Map.Publication] of a placement has the inserts, updates
// and deletes of its rows, among those of other placements, and all changes of procaas.fences. They
// are for programs that read the changes of many placements with one slot. A transfer does not use
// them: it makes its own publication of exactly the rows that it moves, and drops it in the end.
//
// # Promotion
//
// A promoted server has another timeline than the one on which its fences were compared, so its
// guard refuses all writers with PC002. [Service.Compare] compares the fences with the map and then
// lets writers in. It ends transfers from or to the shard that have not switched, because their
// freeze may be lost: their token is invalid.
package shardmap
