// Package shards checks what files say of shard maps: keys and tables, hosts, where the parts of a keyspace begin, and
// the rules of registration.
package shards
