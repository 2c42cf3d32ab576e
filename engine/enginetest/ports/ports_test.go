package ports

import (
	"net"
	"strconv"
	"testing"
)

func TestAReservedPortIsFreeForItsProgramAndTakenForOthers(t *testing.T) {
	t.Parallel()
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for range 2 { // a program starts, ends, and comes back
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if again, err := take(port); err == nil {
			again()
			t.Fatal("the port was given again while its program was down")
		}
	}

	release()
	again, err := take(port)
	if err != nil {
		t.Fatalf("a released port is not given again: %v", err)
	}
	again()
}

func TestAPortIsNotReservedWhileSomebodyListensAtIt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if release, err := take(l.Addr().(*net.TCPAddr).Port); err == nil {
		release()
		t.Error("a port was given at which a program listens")
	}
}
