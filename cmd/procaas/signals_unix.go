//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// reloadOnHangup calls reload for each SIGHUP until ctx ends.
func (n *node) reloadOnHangup(ctx context.Context, reload func() error) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			if err := reload(); err != nil {
				n.log.Error("the new pipelines are refused, the old ones stay", "error", err)
				continue
			}
			n.log.Info("pipelines are reloaded")
		}
	}
}
