// Package cluster computes which workers of a cluster may have which partitions, how even their loads can be,
// and where requests carry their key. It checks what files say about that.
package cluster
