package route

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"procaas/handlers/balancer/language"
)

// keyOf returns the key of a request, or an error that says where it should be. An empty key is an
// error, because all such requests would go to one worker.
func keyOf(r *http.Request, place language.KeyPlace) (string, error) {
	var key, where string
	switch place.In {
	case "header":
		key, where = r.Header.Get(place.Name), "the header "+place.Name
	case "query":
		key, where = r.URL.Query().Get(place.Name), "the parameter "+place.Name+" of the query"
	default:
		key, where = segment(r.URL.EscapedPath(), place.Segment), fmt.Sprintf("segment %d of the path", place.Segment)
	}
	if key == "" {
		return "", fmt.Errorf("the request has no key, which is expected in %s", where)
	}
	return key, nil
}

// segment returns the n-th part of a path, from 1, or empty. It splits the path before it unescapes
// it, because a key may contain a slash as %2F.
func segment(escaped string, n int) string {
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	if n > len(parts) {
		return ""
	}
	plain, err := url.PathUnescape(parts[n-1])
	if err != nil {
		return "" // net/http refuses such a path
	}
	return plain
}
