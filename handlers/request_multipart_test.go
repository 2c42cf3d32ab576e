package handlers_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"procaas/dsl/datum"
	"procaas/engine/model"
	"procaas/handlers"
)

// A sent request, as a server reads it.
type sentParts struct {
	contentType string
	body        string
	parts       []string
}

// roundTripper answers requests by a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// sendParts sends a request twice, as two attempts, and returns what arrived.
func sendParts(t *testing.T, parts []handlers.Part) (all []sentParts, err error) {
	t.Helper()
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		sent := sentParts{contentType: r.Header.Get("Content-Type"), body: string(body)}
		r.Body = io.NopCloser(strings.NewReader(sent.body))
		in, err := r.MultipartReader()
		if err != nil {
			return nil, err
		}
		for {
			p, err := in.NextPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			data, err := io.ReadAll(p)
			if err != nil {
				return nil, err
			}
			sent.parts = append(sent.parts, fmt.Sprintf("%s|%s|%s|%s", p.FormName(), p.FileName(), p.Header.Get("Content-Type"), data))
		}
		all = append(all, sent)
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
	})
	r := handlers.Request{URL: "http://orders.example/v1/files", Multipart: parts}
	for range 2 {
		if _, err := r.Handle(t.Context(), newCall(transport, ordersService)); err != nil {
			return all, err
		}
	}
	return all, nil
}

func TestRequestSendsParts(t *testing.T) {
	t.Parallel()
	text := "iVBORwD/"
	all, err := sendParts(t, []handlers.Part{
		{Name: "policy", JSON: map[string]any{"keep": "7d"}},
		{Name: "note", Text: "Grüße"},
		{Name: "copies", Text: 2},
		{Name: "token", Text: datum.Secret{Name: "TOKEN"}},
		{Name: "absent"},
		{Name: `a "b"`, Base64: &text, FileName: `scan "1".png`, ContentType: "image/png"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`policy||application/json|{"keep":"7d"}`, "note||text/plain; charset=utf-8|Grüße", "copies||text/plain; charset=utf-8|2",
		"token||text/plain; charset=utf-8|s3cr3t", "a %22b%22|scan %221%22.png|image/png|\x89PNG\x00\xff",
	}
	if len(all) != 2 || strings.Join(all[0].parts, "\n") != strings.Join(want, "\n") {
		t.Errorf("want twice\n%q, have\n%q", want, all)
	}
	if all[0].body != all[1].body || all[0].contentType != all[1].contentType {
		t.Error("want the same bytes in each attempt")
	}
}

// TestPartsThatCannotBeSent has mistakes that only show at run time. None is retried.
func TestPartsThatCannotBeSent(t *testing.T) {
	t.Parallel()
	broken := "not base64!"
	for _, c := range []struct {
		part handlers.Part
		want string
	}{
		{handlers.Part{Name: "file", Base64: &broken}, "multipart: part file: base64: want text in base64"},
		{handlers.Part{Name: "list", Text: []any{1}}, "multipart: part list: text: want a simple value, have a list"},
		{handlers.Part{Name: "a\r\nX: 1", Text: "x"}, "control characters are not allowed"},
		{handlers.Part{Name: "a", Text: "x", ContentType: "text/plain\r\nX: 1"}, "control characters are not allowed"},
	} {
		if _, err := sendParts(t, []handlers.Part{c.part}); err == nil || !strings.Contains(err.Error(), c.want) || !model.IsPermanent(err) {
			t.Errorf("want %q without a retry, have %v", c.want, err)
		}
	}
}
