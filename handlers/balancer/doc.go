// Package balancer decides which worker serves which partition.
//
// A cluster of stateful workers serves partitions, each on one worker at a time. A partition map
// says which workers may hold a partition. Workers report what they served and dropped, and a
// [Policy] answers with moves. Policies have no clock, no I/O and no random source of their own:
// the same reports and seed give the same moves.
//
// The policies v1 to v4 are those of the article "Fanout" of Yandex Messenger. v5 moves a partition
// only if the drops that it expects to prevent exceed those that the move causes.
//
// v5 learns from reports, and its parameters need no tuning:
//
//   - It learns the capacity of a worker from its load and its busy time, in the units of weights.
//     These may differ from the units of requests, and may leave out drops. It fits the extra work
//     of cold caches, and its duration, to the effects of moves. It learns from all partitions how
//     long unusual loads last. A first large deviation counts even without such experience.
//   - horizon_s (300) is how far ahead it predicts drops: with current loads as long as they are
//     expected to last, then with usual ones. With a longer horizon, more moves pay.
//   - margin (1) is how many times, beyond once, a move must be worth its cost. fixed_cost (0.2 of
//     what a worker does in a second) is the cost of any move. Higher values mean fewer moves. v5
//     compares what moves promised to prevent with what they did prevent. If that is little, as
//     with bursts, moves must promise up to ten times as much.
//   - It also learns how much of a recent deviation remains later: all where loads drift, little
//     where each minute is independent.
//   - Reported drops count more than a prediction from load and capacity. If a worker drops for a
//     minute, what it serves is all that it can do. So v5 works without a busy time, or with a wrong one.
//   - budget (0.06) limits the share of partitions that move voluntarily in any minute. It is three
//     times that while the cluster drops, and at least five moves. no_return_s (600) is how long a
//     partition does not go back. A partition that must leave goes back only if that saves two
//     minutes of its load.
//   - A worker is down after three silent reports. If reports come every 5 seconds or more rarely,
//     one is enough, because balancer.observe then asks three times. One is also enough if nothing
//     listens at its address. More are needed if healthchecks were lost before. If half of the
//     cluster falls silent at once, fifteen are needed (90 seconds with long steps), because
//     emptying live workers costs about as much as that wait. A worker that dies repeatedly gets no
//     partitions, and a partition whose workers die stays where it is.
//   - A worker that announces a stop is emptied within three quarters of the notice that earlier
//     stops gave (20 seconds at first). If all other workers for a partition are full, and outages
//     have been short, the partition waits for its worker.
package balancer
