package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"procaas/engine/api/access"
	"procaas/engine/api/rest"
)

// TestGuardLetsThroughByTheRulesOfTheAPI sends the token in a header of its own: that of
// Authorization belongs to the addressee of the request.
func TestGuardLetsThroughByTheRulesOfTheAPI(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	})
	send := func(h http.Handler, host, proxy, own string) (int, string, http.Header) {
		r := httptest.NewRequest("POST", "http://"+host+"/", nil)
		if proxy != "" {
			r.Header.Set("Proxy-Authorization", proxy)
		}
		if own != "" {
			r.Header.Set("Authorization", own)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	open := access.Guard(access.Options{Access: newFake(taxi(t)), Local: true}, next)
	if status, body, _ := send(open, "127.0.0.1", "", "Bearer theirs"); status != 200 || body != "Bearer theirs" {
		t.Errorf("without tokens: have %d %s", status, body)
	}
	if status, _, _ := send(open, "other.example", "", ""); status != http.StatusMisdirectedRequest {
		t.Errorf("by another name: have %d", status)
	}
	guarded := access.Guard(access.Options{Access: newFake(taxi(t)), Token: "t0", Open: rest.OpenGroups()}, next)
	for _, c := range []struct {
		proxy, own string
		status     int
	}{
		{"Bearer t0", "Bearer theirs", 200}, {"", "Bearer t0", 407}, {"", "", 407}, {"Bearer wrong", "", 407}, {"Basic t0", "", 407},
	} {
		status, _, header := send(guarded, "127.0.0.1", c.proxy, c.own)
		if status != c.status || (status == 407) != (header.Get("Proxy-Authenticate") != "") {
			t.Errorf("%+v: have %d, %v", c, status, header)
		}
	}
}
