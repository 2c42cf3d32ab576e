// Package balancer decides which worker serves which partition.
//
// A cluster of stateful workers serves partitions, each on one worker at a time.
// A partition map says which workers may hold a partition. Workers report what they
// served and dropped; a [Policy] answers with moves. Policies have no clock, no I/O
// and no chance of their own: the same reports and seed give the same moves.
//
// The policies v1 to v4 are those of the article "Fanout" of Yandex Messenger; v5 moves a
// partition only when the drops that it expects to prevent outweigh those that the
// move causes.
//
// What v5 knows, it has learned from reports, and none of its parameters has to be tuned:
//
//   - What a worker can do is its load for the share of time that it was busy, in the units
//     of weights, which may be other ones than those of requests, and may leave out what was
//     dropped. How much more work cold caches are, and for how long, is fitted to what
//     landings did. How long loads stay unusual comes from all partitions; a first great
//     deviation counts although nothing has lasted before.
//   - horizon_s (300) is how far drops are foreseen: by the loads of now as long as they are
//     expected to last, and by usual ones then. Longer means that more moves pay.
//   - margin (1) is how many times a move is to be worth its cost beyond once; fixed_cost
//     (0.2 of what a worker does in a second) is what any move costs. Both make it calmer.
//     What moves promised to prevent is compared with what they did; where that is little,
//     as in bursts, moves have to promise up to ten times as much.
//   - How much of what the last minutes were unlike is still there a while later is learned,
//     too: all where loads wander, little where each minute is drawn anew.
//   - What workers report as dropped counts for more than what follows from their load and
//     capacity: who goes on dropping for a minute can do no more than what it serves meanwhile.
//     So v5 does without a busy time, and with a wrong one.
//   - budget (0.06) bounds the share of partitions that move of free will in any minute, three
//     times that while the cluster drops, and five moves at least. no_return_s (600) is how
//     long a partition does not go back; one that has to leave goes back only where that saves
//     two minutes of its load.
//   - A worker is down after three silent reports, or one where reports come every 5 seconds
//     or more seldom (balancer.observe asks thrice for it then), or one where nothing listens at
//     its address any more; more when healthchecks were
//     lost before, and fifteen (90 seconds, with long steps) when half of the cluster is silent
//     at once: to empty workers that live costs about as much as so long a wait. Who dies again
//     and again gets nothing, and a partition whose workers die stays where it is.
//   - Who announces a stop is emptied within three quarters of the notice that earlier stops
//     gave (20 seconds at first). Where all that may take a partition are full, and outages
//     have been short, it waits for its worker.
package balancer
