// Package sharding has the handler types of transfers, one for each step, and those that maintain
// shards: how full they are, which keys should leave them, and what is left over on them.
//
// Package shardmap has the map, and package transfer moves rows. This package calls both, and
// imports no other part of sharding.
package sharding
