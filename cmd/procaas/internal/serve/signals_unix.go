//go:build unix

package serve

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"procaas/engine/definitions"
	"procaas/engine/store"
)

// reloadOnHangup reloads the pipelines on each SIGHUP until ctx ends.
func (n *Node) reloadOnHangup(ctx context.Context) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			by := store.Actor{Name: "node " + nodeName(n.flags.Name), Reason: "SIGHUP"}
			diff, err := n.reload(ctx, definitions.Change{}, by)
			if err != nil {
				n.log.Error("the new pipelines are refused, the old ones stay", "error", err)
				continue
			}
			n.log.Info("pipelines are reloaded", "before", diff.Old, "now", diff.New, "changes", len(diff.Changes))
		}
	}
}
