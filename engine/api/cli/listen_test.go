package cli_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

// An address that cannot be listened on names the flag, and the remedy works.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		l.Addr().String():   "--listen " + l.Addr().String() + ": the address is in use: ",
		"192.0.2.1:0":       "this machine does not have the address",
		"127.0.0.1":         `--listen "127.0.0.1": want HOST:PORT such as 127.0.0.1:8080`,
		"127.0.0.1:nothing": `--listen "127.0.0.1:nothing": want HOST:PORT`,
		"nowhere.invalid:0": `--listen "nowhere.invalid:0": want HOST:PORT`,
		"127.0.0.1:99999":   `--listen "127.0.0.1:99999": want HOST:PORT`,
	} {
		_, err := net.Listen("tcp", address)
		have := cli.ListenError("listen", address, err)
		if !strings.Contains(have.Error(), want) {
			t.Errorf("%s: want %q, have %v", address, want, have)
		}
		if strings.Contains(want, "HOST:PORT") != errors.As(have, new(cli.UsageError)) {
			t.Errorf("%s: want wrong use only for what is no address, have %v", address, have)
		}
	}
	again, err := net.Listen("tcp", "127.0.0.1:0") // as the remedy says
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
