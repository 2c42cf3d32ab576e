//go:build linux || darwin

package demo

import (
	"context"
	"fmt"

	"procaas/engine/enginetest/cluster"
)

// startServers starts a server for each of two shards, and returns their addresses. end stops them, and removes their data.
func startServers(ctx context.Context) (shards []string, end func(), err error) {
	var all []*cluster.Cluster
	end = func() {
		for _, c := range all {
			_ = c.Stop() // it ends with this process at the latest
		}
	}
	for range 2 {
		c, err := cluster.Start(ctx, "wal_level = logical", "shared_buffers = '64MB'", "max_replication_slots = 40", "max_wal_senders = 40")
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("start a shard: %w", err)
		}
		all = append(all, c)
		shards = append(shards, c.URL)
	}
	return shards, end, nil
}
