package pgkit

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"procaas/engine/socket"
)

// LostAfter is how long the other end of a connection may be silent if callers wait for an answer.
const LostAfter = 3 * time.Second

// These find a connection lost on which this process only waits, for an answer or for nothing. The
// first probe comes this long before the connection counts as lost.
const (
	probeEvery = time.Second
	probes     = 3
)

// NoticeLoss makes connections fail if the other end vanishes without notice: a machine that
// crashes, or a firewall that forgets them. Otherwise each call on one lasts until its own timeout.
// The other end may acknowledge nothing, or refuse more data because it reads none, for the given
// time, at least 2 s. The time to connect is bounded by the ConnectTimeout of c.
func NoticeLoss(c *pgx.ConnConfig, after time.Duration) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: after - probeEvery, Interval: probeEvery, Count: probes},
		Control:         boundSilence(after),
	}
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return socket.Prompt(conn), nil
	}
}

// IsLoss reports whether an error means that the other end of a connection has vanished. Then other
// connections to it are probably lost, too. The kernel reports the loss to one caller only: if that
// is the reader that pgx starts for a long write, the writer gets EPIPE.
func IsLoss(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EPIPE)
}
