package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"procaas/engine/api/cli"
)

// TestSubmitReadsLines sends what it reads from standard input to a server that counts.
func TestSubmitReadsLines(t *testing.T) {
	t.Parallel()
	line := func(i int) string { return fmt.Sprintf(`{"type": "x", "id": "e-%d"}`, i) }
	var many strings.Builder
	for i := range 2500 {
		many.WriteString(line(i) + "\n")
	}
	for name, c := range map[string]struct {
		in       string
		arrays   []int // how many events each request has; 0 for one that is no array
		code     int
		complain string
	}{
		"one event":           {line(1), []int{0}, cli.ExitFine, ""},
		"one event and lines": {"{\n\"type\": \"x\"\n}\n", []int{0}, cli.ExitFine, ""},
		"an array":            {"[" + line(1) + "," + line(2) + "]", []int{2}, cli.ExitFine, ""},
		"lines":               {line(1) + "\n\n" + line(2) + "\r\n" + line(3), []int{3}, cli.ExitFine, ""},
		"many lines":          {many.String(), []int{1000, 1000, 500}, cli.ExitFine, ""},
		"large lines": {
			strings.Repeat(`{"type": "x", "payload": "`+strings.Repeat("y", 600_000)+"\"}\n", 3),
			[]int{1, 1, 1},
			cli.ExitFine,
			"",
		},
		"a wrong line":       {line(1) + "\n" + line(2) + "\n{\"type\": }\n", nil, cli.ExitUsage, "-, line 3, column 10: invalid character '}'"},
		"a line of text":     {line(1) + "\nhello\n", nil, cli.ExitUsage, "-, line 2, column 1: invalid character 'h'"},
		"a list among lines": {line(1) + "\n[]\n", nil, cli.ExitUsage, "-, line 2, column 1: want an event, have other JSON"},
		"one that is wrong":  {"{\n \"type\": \"x\",\n}", nil, cli.ExitUsage, "-, line 3, column 1: invalid character '}'"},
		"nothing":            {"\n", nil, cli.ExitUsage, "- is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var arrays []int
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var list []json.RawMessage
				body, _ := io.ReadAll(r.Body)
				if err := json.Unmarshal(body, &list); err != nil && !json.Valid(body) {
					t.Errorf("have the body %.100s", body)
				}
				arrays = append(arrays, len(list))
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, `{"items": []}`)
			}))
			defer s.Close()
			var out, errs lockedBuffer
			code := Main(t.Context(), []string{"submit", "-", "--server", s.URL}, cli.Streams{In: strings.NewReader(c.in), Out: &out, Err: &errs})
			if code != c.code || fmt.Sprint(arrays) != fmt.Sprint(c.arrays) || !strings.Contains(errs.text(), c.complain) {
				t.Errorf("have exit code %d, requests with %v events and %s; want %d, %v, %s", code, arrays, errs.text(), c.code, c.arrays, c.complain)
			}
		})
	}
}
