package outbound

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// fewFiles has the addresses of services, for the process of [TestIdleConnectionsMakeRoomForOthers].
const fewFiles = "PROCAAS_TEST_FEW_FILES"

// TestIdleConnectionsMakeRoomForOthers lets another process of this test have 64 open files, and make requests to more
// services than that.
func TestIdleConnectionsMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	if urls := os.Getenv(fewFiles); urls != "" {
		callAll(t, strings.Split(urls, ","))
		return
	}
	var urls []string
	for range 80 {
		urls = append(urls, startScripted(t, func(e *exchange) {
			for e.next() != nil {
				e.say(ok)
			}
		}).url)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), fewFiles+"="+strings.Join(urls, ","))
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// callAll makes a request to each service, and expects few idle connections. Then something else takes all files.
func callAll(t *testing.T, urls []string) {
	t.Helper()
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	r := Reach{MaxConns: 256, Declared: urls}
	rt := newTransport(newFence(r), r)
	defer rt.CloseIdleConnections()
	call := func(url string) {
		if got, err := said(rt, post(t.Context(), t, url, "{}")); err != nil || got != "200 ok" {
			t.Fatalf("have %q, %v", got, err)
		}
	}
	for _, url := range urls {
		call(url)
	}
	if n := rt.lean.idling; n == 0 || n > 16 {
		t.Errorf("want some idle connections, and few for 64 files, have %d", n)
	}
	for { // as those of callers do
		c, err := net.Dial("tcp", strings.TrimPrefix(urls[0], "http://"))
		if NoMoreFiles(err) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	call(urls[1])
}
