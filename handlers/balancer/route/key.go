package route

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"procaas/dsl/cluster"
)

// keyOf returns the key of a request; an error says where it should be. An empty key is none:
// all requests without one would go to a single worker.
func keyOf(r *http.Request, place cluster.KeyPlace) (string, error) {
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

// segment returns the n-th part of a path, from 1; empty when there is none. The path is split
// before it is unescaped: a key may hold a slash, which is written %2F.
func segment(escaped string, n int) string {
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	if n > len(parts) {
		return ""
	}
	plain, err := url.PathUnescape(parts[n-1])
	if err != nil {
		return "" // net/http does not let such a path in
	}
	return plain
}
