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
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("another program has it now") // none of these tests
	}
	if again, err := take(port); err == nil {
		again()
		t.Error("a port was given at which a program listens")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := take(port)
	if err != nil {
		t.Fatalf("a released port is not given again: %v", err)
	}
	again()
}
