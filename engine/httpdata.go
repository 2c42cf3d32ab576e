package engine

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"procaas/dsl/datum"
)

// maxRequestData is how many bytes of a request's body are read at most.
const maxRequestData = 16 << 20

// RequestData describes an HTTP request to the expressions of stub services and tests: method,
// path, query, headers and body. It reads the body. Header names are in lower case. A repeated
// parameter becomes a list. A body that is neither JSON nor a form becomes text.
func RequestData(r *http.Request) (map[string]any, error) {
	var data []byte
	if r.Body != nil {
		var err error
		if data, err = io.ReadAll(io.LimitReader(r.Body, maxRequestData)); err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
	}
	body, err := bodyData(r.Header.Get("Content-Type"), data)
	if err != nil {
		return nil, err
	}
	headers := make(map[string]any, len(r.Header))
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return map[string]any{
		"method": r.Method, "path": r.URL.Path, "query": valuesData(r.URL.Query()),
		"headers": headers, "body": body,
	}, nil
}

func bodyData(contentType string, data []byte) (any, error) {
	if len(data) == 0 {
		return nil, nil
	}
	switch kind, _, _ := mime.ParseMediaType(contentType); {
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		body, err := datum.ParseJSON(data)
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return body, nil
	case kind == "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(data))
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return valuesData(values), nil
	}
	return string(data), nil
}

// valuesData turns a single value into a string, and repeated values into a list.
func valuesData(values url.Values) map[string]any {
	out := make(map[string]any, len(values))
	for name, all := range values {
		if len(all) == 1 {
			out[name] = all[0]
			continue
		}
		items := make([]any, len(all))
		for i, v := range all {
			items[i] = v
		}
		out[name] = items
	}
	return out
}
