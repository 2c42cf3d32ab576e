package handlers

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
	unicodetext "golang.org/x/text/encoding/unicode"

	"procaas/dsl/datum"
	"procaas/engine"
	"procaas/engine/model"
	"procaas/engine/outbound"
)

const (
	excerptRead  = 64 << 10 // how much of an unexpected reply is read
	excerptShown = 4 << 10  // bytes of it that may be shown
	excerptRunes = 300      // characters that are shown
)

// read converts a reply to a result or an error.
func (r *Request) read(c *engine.Call, resp *http.Response, s *secrets) (model.Result, error) {
	if !r.expected(resp.StatusCode) {
		return model.Result{}, r.unexpected(c, resp, s)
	}
	b := bodies.Get().(*body)
	defer b.recycle()
	data, err := r.readBody(c, resp, b)
	if err != nil {
		return model.Result{}, err
	}
	value, err := r.decode(resp, data)
	if err != nil {
		// Permanent, because the service has done its work and would answer the same again.
		err = fmt.Errorf("%s %s: reply %d %w, have %q",
			resp.Request.Method, publicURL(resp.Request.URL), resp.StatusCode, err, excerpt(data, s))
		return model.Result{}, model.Permanent(err)
	}
	return model.Result{Response: value, Status: resp.StatusCode}, nil
}

// expected reports whether a status is a success. By default any 2xx is.
func (r *Request) expected(status int) bool {
	if len(r.Expect) == 0 {
		return status/100 == 2
	}
	text := strconv.Itoa(status)
	for _, e := range r.Expect {
		if e == text || strings.HasSuffix(e, "xx") && e[0] == text[0] {
			return true
		}
	}
	return false
}

// unexpected returns the error of an unexpected status.
func (r *Request) unexpected(c *engine.Call, resp *http.Response, s *secrets) error {
	// A truncated reply is still unexpected, and its start is shown.
	data, _ := io.ReadAll(io.LimitReader(resp.Body, excerptRead))
	if len(data) < excerptRead {
		kind, charset := mediaType(resp)
		if text, err := inUTF8(kind, charset, data); err == nil {
			data = text
		}
	}
	err := &model.StatusError{
		Status:  resp.StatusCode,
		Method:  resp.Request.Method,
		URL:     publicURL(resp.Request.URL),
		Excerpt: excerpt(data, s),
		Body:    errorBody(data),
	}
	if resp.StatusCode < http.StatusBadRequest { // in a redirect, Retry-After says when to follow it
		return err
	}
	if delay, ok := outbound.RetryAfter(resp.Header, c.Now); ok {
		return model.AfterAtLeast(delay, err)
	}
	return err
}

// A body has the memory for reading replies, one at a time.
type body struct {
	bytes.Buffer
	within io.LimitedReader
}

var bodies = sync.Pool{New: func() any { return new(body) }}

// recycle keeps the memory for another reply. Nothing may refer to the bytes any more.
func (b *body) recycle() {
	if b.Cap() > 8<<10 {
		return // most replies are small
	}
	b.Reset()
	b.within = io.LimitedReader{}
	bodies.Put(b)
}

// read reads at most as many bytes.
func (b *body) read(from io.Reader, most int64) ([]byte, error) {
	b.within = io.LimitedReader{R: from, N: most}
	_, err := b.ReadFrom(&b.within)
	return b.Bytes(), err
}

// readBody reads a body up to its limit. The bytes belong to b.
func (r *Request) readBody(c *engine.Call, resp *http.Response, b *body) ([]byte, error) {
	limit := int64(r.MaxResponse)
	if limit == 0 {
		limit = c.MaxReply
	}
	if limit == 0 {
		limit = defaultMaxReply
	}
	// One extra byte detects a reply that is too large.
	data, err := b.read(resp.Body, min(limit, smallReply)+1)
	if err != nil {
		return nil, networkError(resp.Request, err)
	}
	if limit > smallReply && len(data) > smallReply {
		data, err = r.readLarge(c, resp, data, limit)
	} else {
		err = reserve(c, resp, sizeOfReply(data), false)
	}
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, model.Permanent(fmt.Errorf("%s %s: reply is larger than max-response, %d bytes",
			resp.Request.Method, publicURL(resp.Request.URL), limit))
	}
	return data, nil
}

const (
	smallReply    = 64 << 10 // bytes that are read before there is memory for them
	copiesOfReply = 3        // beside its decoded form: as it came, as its run keeps it, and in a checkpoint
	largestFactor = 80       // the most bytes that a byte of JSON takes decoded
)

// sizeOfReply returns the bytes of memory that a reply takes with its decoded form.
func sizeOfReply(data []byte) int { return datum.DecodedSize(data) + copiesOfReply*len(data) }

// readLarge reads the rest of a reply when the node has memory for the most that it may take. A call
// never waits for memory while it holds some of an unread reply, so calls do not wait for each other.
func (r *Request) readLarge(c *engine.Call, resp *http.Response, data []byte, limit int64) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 {
		limit = min(limit, max(n, int64(len(data))))
	}
	if err := reserve(c, resp, int(limit)*(largestFactor+copiesOfReply), true); err != nil {
		return nil, err
	}
	rest, err := io.ReadAll(io.LimitReader(resp.Body, limit+1-int64(len(data))))
	if err != nil {
		return nil, networkError(resp.Request, err)
	}
	data = append(data, rest...)
	return data, reserve(c, resp, sizeOfReply(data), false)
}

// reserve reserves memory for a reply.
func reserve(c *engine.Call, resp *http.Response, bytes int, most bool) error {
	if c.Reserve == nil {
		return nil
	}
	if err := c.Reserve(resp.Request.Context(), bytes, most); err != nil {
		return fmt.Errorf("%s %s: the reply: %w", resp.Request.Method, publicURL(resp.Request.URL), err)
	}
	return nil
}

// decode decodes the body as the pipeline says. The error follows the words "reply 200".
func (r *Request) decode(resp *http.Response, data []byte) (any, error) {
	if r.Response == "none" || resp.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	if r.Response == "bytes" {
		return base64.StdEncoding.EncodeToString(data), nil
	}
	kind, charset := mediaType(resp)
	data, err := inUTF8(kind, charset, data)
	if err != nil {
		return nil, err
	}
	switch r.Response {
	case "json":
		return decodeJSON(data)
	case "text":
		return decodeText(data)
	}
	// Many services answer 200 or 201 with an empty body and still name a content type.
	if len(data) == 0 {
		return nil, nil
	}
	switch {
	case isJSON(kind):
		return decodeJSON(data)
	case (kind == "" || strings.HasPrefix(kind, "text/")) && looksLikeJSON(data):
		if value, err := datum.ParseJSON(data); err == nil {
			return value, nil
		}
	}
	return decodeText(data)
}

// mediaType returns the type of a reply and its charset. A malformed type counts as missing.
func mediaType(resp *http.Response) (kind, charset string) {
	text := resp.Header.Get("Content-Type")
	if text == "application/json" { // by far the most
		return text, ""
	}
	kind, parameters, err := mime.ParseMediaType(text)
	if err != nil {
		return "", ""
	}
	return kind, parameters["charset"]
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// inUTF8 decodes a body from the charset of its type. JSON that is UTF-8 stays as it is, because some services name their default
// charset with it. A byte order mark is dropped. The error follows the words "reply 200".
func inUTF8(kind, charset string, data []byte) ([]byte, error) {
	if charset != "" && !(isJSON(kind) && utf8.Valid(data) && !bytes.ContainsRune(data, 0)) {
		e, err := htmlindex.Get(charset)
		if err != nil {
			return nil, fmt.Errorf("has the charset %q, which is not known: let the service send UTF-8, or set response: none", charset)
		}
		if e != unicodetext.UTF8 { // whose decoder would hide bytes that are no UTF-8
			if data, err = e.NewDecoder().Bytes(data); err != nil {
				return nil, fmt.Errorf("is not text in %s: %w", charset, err)
			}
		}
	}
	return bytes.TrimPrefix(data, []byte("\uFEFF")), nil
}

// looksLikeJSON recognizes JSON of services that do not declare it.
func looksLikeJSON(data []byte) bool {
	text := strings.TrimSpace(string(data))
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}

// decodeJSON returns an error that follows the word "reply".
func decodeJSON(data []byte) (any, error) {
	value, err := datum.ParseJSON(data)
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	return value, nil
}

// decodeText refuses text that the shared state cannot keep: a zero byte, or invalid UTF-8.
func decodeText(data []byte) (any, error) {
	if !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
		return nil, errors.New("is not text in UTF-8: the service must send UTF-8, or name its charset in Content-Type; or write response: bytes")
	}
	return string(data), nil
}

// excerpt makes the start of a body safe for logs: one line, no secrets, no control characters.
func excerpt(data []byte, s *secrets) string {
	shown := strings.ToValidUTF8(s.hide(string(data)), "\uFFFD") // before a cut could leave a part of a secret
	text, rest := []rune(shown[:min(len(shown), excerptShown)]), ""
	if len(text) > excerptRunes {
		text, rest = text[:excerptRunes], "…"
	}
	return strings.Join(strings.FieldsFunc(string(text), func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c)
	}), " ") + rest
}

// errorBody decodes the body of an unexpected reply for on-error. It is nil if the body is not JSON
// or was cut off. The engine removes secrets.
func errorBody(data []byte) any {
	// If the read reached its limit, there may be more.
	if len(data) == excerptRead {
		return nil
	}
	body, err := datum.ParseJSON(data)
	if err != nil {
		return nil
	}
	return body
}
