package route

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// A KeySource says where a request has its key.
type KeySource struct {
	kind, name string
	segment    int
}

// DefaultKey is where a request has its key when nothing else is said.
const DefaultKey = "header:Procaas-Key"

// ParseKeySource reads header:NAME, query:NAME or path:N, the segment of the path, from 1.
func ParseKeySource(text string) (KeySource, error) {
	kind, name, _ := strings.Cut(text, ":")
	k := KeySource{kind: kind, name: name}
	bad := fmt.Errorf("%q is no place of a key; want header:NAME, query:NAME or path:N, which is the segment of the path from 1", text)
	if name == "" {
		return k, bad
	}
	switch kind {
	case "header", "query":
		return k, nil
	case "path":
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > 100 {
			return k, bad
		}
		k.segment = n
		return k, nil
	}
	return k, bad
}

// String gives it as it was read.
func (k KeySource) String() string { return k.kind + ":" + k.name }

// Key gives the key of a request; an error says where it should be.
func (k KeySource) Key(r *http.Request) (string, error) {
	var key string
	switch k.kind {
	case "header":
		key = r.Header.Get(k.name)
	case "query":
		key = r.URL.Query().Get(k.name)
	case "path":
		key = segment(r.URL.EscapedPath(), k.segment)
	}
	if key != "" {
		return key, nil
	}
	return "", fmt.Errorf("the request has no key, which is expected in %s", k.place())
}

func (k KeySource) place() string {
	switch k.kind {
	case "header":
		return "the header " + k.name
	case "query":
		return "the parameter " + k.name + " of the query"
	}
	return fmt.Sprintf("segment %d of the path", k.segment)
}

// segment gives the n-th part of a path, from 1; empty when there is none.
func segment(escaped string, n int) string {
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	if n > len(parts) {
		return ""
	}
	return unescape(parts[n-1])
}

func unescape(part string) string {
	plain, err := url.PathUnescape(part)
	if err != nil {
		return "" // net/http does not let such a path in
	}
	return plain
}
