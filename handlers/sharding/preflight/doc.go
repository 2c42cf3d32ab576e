// Package preflight finds out whether the tables of a shard can be used by a shard map.
//
// [Read] reads facts from the server and its catalog, and changes nothing. [Check] judges them
// without a connection. Each finding names the table, what would happen, and the mend. While a
// finding of level error is open, nothing on the shard may be changed.
package preflight
