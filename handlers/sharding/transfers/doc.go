// Package transfers shows and steers transfers between shards, and has the interface of shard maps
// for the API and handlers.
package transfers
