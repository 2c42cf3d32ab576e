// Package cluster knows which workers of a cluster may hold which partitions, how even their loads can become, and
// where requests have their key. It checks what files say of that.
package cluster
