// Package sharding has the handler types of transfers, one for each step, and those that look after
// shards: how full they are, which keys should leave them, and what is left over on them.
//
// Package shardmap has the map itself, and package transfer moves rows. This package calls both, and
// imports nothing else of sharding.
package sharding
