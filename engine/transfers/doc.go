// Package transfers shows transfers between shards and orders what becomes of them, and says what
// handlers ask of a shard map.
package transfers
