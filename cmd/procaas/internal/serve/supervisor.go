package serve

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"procaas/engine/api/client"
	"procaas/engine/clock"
)

// This file tells a supervisor that speaks the protocol of systemd's Type=notify how the node is. Without one, nothing
// is told: the socket of the supervisor is in the environment. See sd_notify(3).

// waitsForStore keeps the supervisor from ending a start that waits for its store. It is told again every 2 s.
const waitsForStore = "STATUS=waiting for the store\nEXTEND_TIMEOUT_USEC=30000000"

// tell sends the supervisor some variables.
func tell(log *slog.Logger, variables ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(variables, "\n")); err != nil {
		log.Warn("the supervisor cannot be told", "error", err)
	}
}

// reportUntil tells the supervisor once the node accepts and runs events, meanwhile that it is alive, and when ctx ends
// that it drains.
func (n *Node) reportUntil(ctx context.Context) {
	self := client.New(n.URL(), "").Unverified()
	for {
		_, err := self.Health(ctx, false)
		if err == nil {
			break
		}
		if !clock.Pause(ctx, 50*time.Millisecond) {
			tell(n.log, daemon.SdNotifyStopping)
			return
		}
	}
	tell(n.log, daemon.SdNotifyReady, "STATUS=serving at "+n.URL())
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("the supervisor's watchdog is not fed", "error", err)
	}
	var feed <-chan time.Time
	if interval > 0 {
		ticker := time.NewTicker(interval / 3)
		defer ticker.Stop()
		feed = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			tell(n.log, daemon.SdNotifyStopping, "STATUS=draining")
			return
		case <-feed:
			n.feedWatchdog(ctx, self, interval/3)
		}
	}
}

// feedWatchdog tells the supervisor that the node answers. If it does not, the supervisor restarts it in the end.
func (n *Node) feedWatchdog(ctx context.Context, self *client.Client, patience time.Duration) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := self.Health(asking, true); err != nil {
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("the node does not answer itself, so its supervisor may restart it", "error", err)
		return
	}
	tell(n.log, daemon.SdNotifyWatchdog)
}
