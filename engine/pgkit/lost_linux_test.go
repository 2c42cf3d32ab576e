package pgkit_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"procaas/engine/pgkit"
)

// The other end reads nothing, so that it acknowledges only what fits into its buffers. To the
// sender, it is as silent as one that has vanished.
func TestAConnectionToWhatHasVanishedIsLost(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	config, err := pgx.ParseConfig("postgres://" + l.Addr().String() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	pgkit.NoticeLoss(config, pgkit.LostAfter)
	c, err := config.DialFunc(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	silent, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for err == nil {
		_, err = c.Write(make([]byte, 1<<20))
	}
	if !pgkit.IsLoss(err) {
		t.Errorf("want the connection lost, have %v", err)
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for name, option := range map[string]int{"idle": unix.TCP_KEEPIDLE, "interval": unix.TCP_KEEPINTVL, "count": unix.TCP_KEEPCNT} {
			if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil || n > 3 {
				t.Errorf("want a short %s of probes, have %d, %v", name, n, err)
			}
		}
	}); err != nil {
		t.Error(err)
	}
}
