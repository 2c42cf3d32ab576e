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
package balancer
