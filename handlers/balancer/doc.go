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
// v5 learns all it needs from reports, and its parameters need no tuning. docs/systems/balancer-formulas.md
// has its formulas, and says why each constant is what it is. Its files are v5.go, forecast.go,
// capacity.go, health.go, witness.go and promises.go.
package balancer
