package cli

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// tokenUntil makes a token that ends then. Nobody checks its signature here.
func tokenUntil(t time.Time) string {
	return "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp": %d}`, t.Unix())) + ".s"
}

// Commands that renew the same login at once ask the issuer once, since it takes what renews the login only once. Each is a process.
func TestCommandsRenewALoginOnce(t *testing.T) {
	if server := os.Getenv("KEPT_FOR"); server != "" {
		fmt.Println("started")
		fmt.Println("have", (&Call{Ctx: t.Context(), Streams: Streams{Err: os.Stdout}}).kept(server))
		return
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	const commands = 3
	fresh := tokenUntil(time.Now().Add(time.Hour))
	var mu sync.Mutex
	asked := map[string]int{} // by what renews the login
	started := make(chan bool, commands)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		used := r.FormValue("refresh_token")
		mu.Lock()
		asked[used]++
		first := len(asked) == 1 && asked[used] == 1
		mu.Unlock()
		if !first {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error": "invalid_grant"}`)
			return
		}
		for range commands { // the others meet a login that is being renewed
			select {
			case <-started:
			case <-ctx.Done():
			}
		}
		fmt.Fprintf(w, `{"id_token": %q, "refresh_token": "second"}`, fresh)
	}))
	t.Cleanup(issuer.Close)
	const server = "https://procaas.example"
	if _, err := KeepToken(ctx, server, KeptToken{Token: "old", Expires: time.Now(), Refresh: "first", Issuer: issuer.URL, Client: "c"}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range commands {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestCommandsRenewALoginOnce$")
		cmd.Env = append(os.Environ(), "KEPT_FOR="+server)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var said []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said = append(said, lines.Text())
				if lines.Text() == "started" {
					started <- true
				}
			}
			if err := cmd.Wait(); err != nil || !strings.Contains(strings.Join(said, "\n"), "have "+fresh) {
				t.Errorf("have %q, %v, want the new token", said, err)
			}
		})
	}
	all.Wait()
	if _, kept, err := readKept(); err != nil || kept[server].Refresh != "second" || asked["first"] != 1 || len(asked) != 1 {
		t.Errorf("have %+v, %v, and the issuer was asked by %v; want one renewal", kept, err, asked)
	}
}
