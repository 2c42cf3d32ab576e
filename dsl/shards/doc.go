// Package shards checks shard maps: keys and tables, hosts, slots and ranges, and rules of registration.
package shards
