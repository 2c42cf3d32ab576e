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

// catchHangups returns the SIGHUPs from now on. They are caught until the process ends, since a SIGHUP that
// nobody catches ends it. One that comes before the node serves waits in the channel.
func catchHangups() <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups
}

// survivePipes turns a pipe that nobody reads any more into an error of writing. Without it, the next line of the
// log would end the process.
func survivePipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// reloadOnHangup reloads the pipelines on each SIGHUP until ctx ends.
func (n *Node) reloadOnHangup(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
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
