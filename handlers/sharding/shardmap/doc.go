// Package shardmap keeps the map from keys to shards, and watches the shards.
//
// A map (shard-maps: in the files) says which shard, a PostgreSQL cluster, keeps the
// rows of a key. Services ask for it by HTTP or with package client, and connect to
// the shard themselves: nobody stands in the path of the data.
//
// # Contract of the map
//
// A [Placement] is the unit that lives on one shard and moves as a whole. Its Key is
//
//   - the key itself, as [Key.String] writes it: "42", or "42/inbox" of two parts; the
//     characters % / # [ within a part are written %25 %2F %23 %5B;
//   - "#7" for slot 7 of the strategy slots;
//   - "[" and the lower bound for a stretch of the strategy range.
//
// [Map.Lookup] finds the placement of a key: the longest placement among the key and
// its first parts, then the slot or the stretch. [Map.Rows] says which rows of a table of the
// map are those of a placement. A table may have columns for the first parts of a key only:
// its rows belong to the longest placement of those, and never to one with more parts. So
// a service asks, and calls the guard, with as many parts as the table has columns for.
//
// Each placement has an epoch, which grows with each move, and each shard has a fence
// for each placement that it has or had: a row of procaas.fences. Who writes calls
//
//	select procaas.guard(map, placement, epoch)
//
// first in each transaction, with the placement and the epoch of the answer. PC001 says
// that the placement is not here, frozen, or at another epoch; PC002 that the server was
// promoted and its fences were not compared with the map yet. In both cases the
// client rolls back, asks the map again (with after-epoch, to wait for the switch
// instead of spinning) and repeats. 40001 is repeated as always.
//
// What always holds:
//
//   - an epoch that the map answers with was handed out by it after its change had
//     committed, so a target may be opened with the next epoch before the switch;
//   - epochs are never used twice: a transfer that is aborted leaves its own behind;
//   - a row of the fence never goes back to an older epoch, and is never deleted.
//
// # Contract of a transfer
//
// A transfer of a placement works like this. All of it is idempotent: after a crash the
// same calls, with the same id, go on.
//
//  1. t, err := m.BeginTransfer(ctx, [Begin]{Key, Target, Transfer: id}) takes the
//     placement over: a new owner token, and the epoch that it will have (t.Next).
//     [ErrBusy] when another transfer has it. The same id takes over from itself with a
//     new token, so that a coordinator that was thought dead is fenced out.
//  2. rows are copied and streamed.
//  3. the freeze, a transaction on the source: procaas.freeze, which thaws by itself after
//     some milliseconds, so that a coordinator that dies leaves the key writable.
//  4. once the stream is applied up to the freeze, in the same transaction on the target:
//     [WriteFence] with State [Active] and epoch t.Next; and on the source procaas.seal,
//     which fails when the freeze has run out, and keeps it from doing so.
//  5. m.Switch(ctx, t) is the commit point, a compare-and-swap on epoch and owner:
//     [ErrLost] means that nothing has changed and never will by this token. When the
//     outcome is unknown, [Map.Read] tells. After it only forward.
//  6. [WriteFence] on the source with State [Moved], epoch t.Next and Target.
//
// To give up before step 5: m.Abort(ctx, t) FIRST, then fence the target Closed at
// t.Next, then the source [Active] at t.Epoch. After Abort no Switch of the token can
// succeed, so the source may take writes again. Package transfer does steps 2 to 6 but for
// the switch itself; procaas.claim there makes void what older tokens have frozen. A rollback
// after the switch is a transfer in the other direction, with the next epoch.
//
// Reservations of keys that are still being registered cannot be transferred
// ([ErrBusy]). Server processes reach shards by [Service.Connect].
//
// # What enroll leaves on a shard
//
// The schema procaas with the fence, fences for the placements that the map has there,
// and for each map up to [Buckets] publications: [Map.Publication] of a placement holds the
// inserts, updates and deletes of its rows, among those of other placements, and all
// changes of procaas.fences. They are for those who read the changes of many placements with one
// slot. A transfer reads none of them: it makes a publication of its own, of the rows that it moves
// and no others, and drops it in the end.
//
// # Promotion
//
// A server that was promoted has another timeline than the one its fences were compared
// on, so its guard refuses everybody with PC002. [Service.Compare] compares the fences
// with the map and then lets writers in. It ends transfers from or to the shard that have
// not switched, since their freeze may be lost: their token is void.
package shardmap
