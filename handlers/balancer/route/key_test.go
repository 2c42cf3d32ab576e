package route_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procaas/handlers/balancer/language"
	"procaas/handlers/balancer/route"
)

// TestKeysComeFromWhereTheyAreSaidToBe asks a proxy without an assignment: with a key it
// has no worker, without one it says where it looked.
func TestKeysComeFromWhereTheyAreSaidToBe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"header:X-User": "", "query:id": "", "path:3": "", "path:1": "",
		"header:X-Other": "the header X-Other", "query:x": "the parameter x of the query", "path:4": "segment 4 of the path",
	} {
		place, err := language.ParseKeyPlace(text)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/v1/users/a%2Fb?id=q-1", nil)
		r.Header.Set("X-User", "h-1")
		w := httptest.NewRecorder()
		route.NewProxy(route.ProxyOptions{Follower: route.NewFollower(newBoard(), nil), Key: place, Patience: 1}).ServeHTTP(w, r)
		status := http.StatusBadRequest
		if want == "" {
			status = http.StatusServiceUnavailable
		}
		if w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: have %d %s", text, w.Code, w.Body)
		}
	}
}
