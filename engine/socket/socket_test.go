package socket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"procaas/engine/socket"
)

// pair returns a connection that is prompt, and its other end.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near = socket.Prompt(dialled)
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// More than the system takes at once arrives whole and in order, also from several goroutines.
func TestWritesArriveWhole(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	const writers, size = 4, 8 << 20
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			if n, err := near.Write(bytes.Repeat([]byte{byte(i)}, size)); n != size || err != nil {
				t.Errorf("have %d bytes written, %v", n, err)
			}
		})
	}
	got := make([]byte, writers*size)
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	writing.Wait()
	for i := range writers {
		part := got[i*size:][:size]
		if !bytes.Equal(part, bytes.Repeat(part[:1], size)) {
			t.Errorf("want one write behind the other, have a mixture in part %d", i)
		}
	}
	if n, err := near.Write(nil); n != 0 || err != nil {
		t.Errorf("have %d, %v for nothing", n, err)
	}
}

// Errors are those of other connections: a deadline, a close, and a peer that has gone.
func TestWritesFailLikeThoseOfOtherConnections(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	much := make([]byte, 64<<20) // far reads one byte of it
	late := make(chan error)
	go func() {
		_, err := far.Read(make([]byte, 1))
		late <- errors.Join(err, near.SetWriteDeadline(time.Unix(1, 0)))
	}()
	n, err := near.Write(much)
	if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "write" || !op.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) ||
		n == 0 || n == len(much) {
		t.Errorf("want a timeout after a part, have %d, %v", n, err)
	}
	if err := <-late; err != nil {
		t.Fatal(err)
	}
	if err := near.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := far.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	far.Close()
	for err = nil; err == nil; {
		_, err = near.Write(much)
	}
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "write" || op.Source == nil || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("want the reset of the peer, have %v", err)
	}
	near.Close()
	if _, err := near.Write(much); !errors.Is(err, net.ErrClosed) {
		t.Errorf("want a closed connection, have %v", err)
	}
	near, far = pair(t)
	_ = far
	go near.Close()
	for err = nil; err == nil; {
		_, err = near.Write(much)
	}
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("want the close, have %v", err)
	}
}
