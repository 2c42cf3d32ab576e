package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"procaas/engine/enginetest/patience"
	"procaas/engine/model"
)

const guardedOrders = `
services:
  - id: bank
    url: URL/api
    auth: {oauth2: {token-url: URL/token, client-id: shop, client-secret: !secret CLIENT}}
pipelines:
  - id: order
    shared-state: {seen: null}
    stages:
      - {id: a, handlers: [{id: echo, request: {service: bank, path: /echo}, result: {seen: !$ sources.echo.response}}]}
      - {id: b, handlers: [{id: pay, request: {service: bank, path: /pay, body: !$ shared-state.seen}}]}
`

// TestTokensLeaveNothingBehindAfterKill9 kills the built binary while it makes calls with an access token, which the service has
// sent back before. Neither a file of the store nor the log has a byte of the token or of the client's secret then, and the next
// process gets a token of its own.
func TestTokensLeaveNothingBehindAfterKill9(t *testing.T) {
	t.Parallel()
	ctx, cancel := patience.Context(t.Context(), 3*time.Minute)
	defer cancel()
	const runs = 4
	var issued atomic.Int64
	var lets atomic.Bool
	called := make(chan string, 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then the server sees that the node is dead
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/token":
			fmt.Fprintf(w, `{"access_token": "t0ken-kill-%d", "token_type": "bearer", "expires_in": 3600}`, issued.Add(1))
		case "/api/echo":
			json.NewEncoder(w).Encode(map[string]string{"you-sent": r.Header.Get("Authorization")})
		default:
			called <- r.Header.Get("Authorization")
			if !lets.Load() {
				<-r.Context().Done() // until the node is dead
			}
		}
	}))
	defer service.Close()
	defer service.CloseClientConnections()
	secrets, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "CLIENT"), []byte("s3cret-of-client"), 0o600); err != nil {
		t.Fatal(err)
	}
	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	c := newCrashing(t, "sqlite:"+filepath.Join(dir, "s.db"), guardedOrders, service.URL, "--secrets-dir", secrets, "--record", "100%",
		"--log-level", "debug")
	c.logs = logs
	search := func() {
		t.Helper()
		echoed := 0
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			for _, secret := range []string{"t0ken-kill", "s3cret-of-client", "czNjcmV0LW9mLWNsaWVud", "dDBrZW4ta2ls"} {
				if bytes.Contains(data, []byte(secret)) {
					t.Errorf("%s has %s", d.Name(), secret)
				}
			}
			echoed += bytes.Count(data, []byte("you-sent"))
			return err
		})
		if err != nil || echoed == 0 {
			t.Fatalf("want what the service sent back in the store, found it %d times: %v", echoed, err)
		}
	}
	server := c.start(ctx)
	ids := c.submitEach(ctx, "order", runs)
	for range runs {
		select {
		case <-called:
		case <-ctx.Done():
			t.Fatal("want a call of each run")
		}
	}
	server.kill()
	search()
	lets.Store(true)
	server = c.start(ctx)
	for _, id := range ids {
		c.await(ctx, id, model.Succeeded, "")
	}
	server.terminate()
	search()
	if n := issued.Load(); n != 2 {
		t.Errorf("want one request for a token by each process, have %d", n)
	}
}
