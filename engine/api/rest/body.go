package rest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/api/problem"
)

const (
	// ReadTime is how long a request with a small body may take to arrive.
	ReadTime = 5 * time.Second

	// BodyRate is the slowest allowed rate of a larger body, in bytes per second. Received bytes
	// extend ReadTime. So an honest sender on a slow line has enough time, and a silent one is cut
	// off early.
	BodyRate = 16 << 10
)

// Body reads a body up to the server's limit, which also holds for what a compressed one unpacks to. It takes memory for the
// body and for its decoded form.
func (c *Call) Body() ([]byte, error) {
	if strings.EqualFold(c.R.Header.Get("Content-Encoding"), "gzip") {
		return c.unpacked()
	}
	return c.read("send it as it is, or compressed with gzip", "gzip, identity")
}

// SentBody is [Call.Body] for bytes that their sender has signed. It refuses compressed ones.
func (c *Call) SentBody() ([]byte, error) { return c.read("send it as it is", "identity") }

// read reads a body that is not compressed. The remedy is for the sender of another.
func (c *Call) read(remedy, accepted string) ([]byte, error) {
	if e := c.R.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, problem.New(problem.UnsupportedMedia, "the body is compressed with %s; %s", e, remedy).With("Accept-Encoding", accepted)
	}
	body, err := c.sent()
	if err == nil {
		err = takeDecoded(c.R, body)
	}
	return body, err
}

// unpacked reads a body that is compressed with gzip.
func (c *Call) unpacked() ([]byte, error) {
	sent, err := c.sent()
	if err != nil {
		return nil, err
	}
	var body []byte
	z, err := gzip.NewReader(bytes.NewReader(sent))
	if err == nil {
		body, err = io.ReadAll(&counted{io.NopCloser(io.LimitReader(z, c.MaxBody+1)), c.R})
	}
	switch {
	case errors.As(err, new(*problem.Problem)):
		return nil, err
	case err != nil:
		return nil, problem.New(problem.InvalidBody, "the body is not gzip, as its Content-Encoding says: %v", err)
	case int64(len(body)) > c.MaxBody:
		return nil, problem.New(problem.BodyTooLarge, "the body is larger than %d bytes when it is unpacked", c.MaxBody)
	}
	return body, takeDecoded(c.R, body)
}

// takeDecoded takes memory for the decoded form of a body.
func takeDecoded(r *http.Request, body []byte) error {
	return TakeMemory(r, datum.DecodedSize(body)+(copiesOfBody-1)*len(body))
}

// These are how much of a body is read at first, and at least after that. It is memory that nobody counts until the bytes come.
const (
	firstPart = 4 << 10
	nextPart  = 60 << 10
)

// sent reads the bytes of a body. It takes memory for those that have come.
func (c *Call) sent() ([]byte, error) {
	tooLarge := func() error {
		return problem.New(problem.BodyTooLarge, "the body is larger than %d bytes", c.MaxBody).With("Connection", "close")
	}
	length := c.R.ContentLength // less than 0 if it is unknown, as HTTP/2 allows
	if length > c.MaxBody {
		return nil, tooLarge()
	}
	whole := int(c.MaxBody)
	if length >= 0 {
		whole = int(length)
	}
	body := make([]byte, 0, min(whole, firstPart)+1)
	for {
		n, err := c.R.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if over := TakeMemory(c.R, n); over != nil {
			return nil, over
		}
		switch {
		case int64(len(body)) > c.MaxBody:
			return nil, tooLarge()
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, incomplete(err, len(body), length)
		case len(body) == cap(body):
			body = slices.Grow(body, min(max(len(body), nextPart), max(whole-len(body), 0)+1))
		}
	}
}

// incomplete returns the problem of a body that did not arrive completely.
func incomplete(err error, have int, announced int64) *problem.Problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return problem.New(problem.BodyTooSlow, "the body came too slowly: %d of %d bytes came in time, of which %d a second are wanted "+
			"behind the first %s; nothing was taken in, so send it again",
			have, announced, BodyRate, ReadTime).With("Connection", "close")
	}
	return problem.New(problem.InvalidBody,
		"the body is shorter than announced: %d of %d bytes came; nothing was taken in, so send it again", have, announced).
		With("Connection", "close")
}

// Media returns the media type of the body in lower case. It refuses other charsets than UTF-8.
func (c *Call) Media(accepted ...string) (string, error) {
	header := c.R.Header.Get("Content-Type")
	if slices.Contains(accepted, header) {
		return header, nil // as most write it
	}
	media, params, err := mime.ParseMediaType(header)
	charset := params["charset"]
	switch {
	case header == "":
		return "", unsupported("the request has no Content-Type", accepted)
	case err != nil:
		return "", unsupported(fmt.Sprintf("the Content-Type %q is not a media type", header), accepted)
	case charset != "" && !slices.Contains([]string{"utf-8", "utf8", "us-ascii"}, strings.ToLower(charset)):
		return "", unsupported(fmt.Sprintf("the charset %q is not UTF-8: encode the body in UTF-8, as JSON is, and leave charset out", charset), accepted)
	case !slices.Contains(accepted, media):
		return media, unsupported(fmt.Sprintf("%s is not understood", media), accepted)
	}
	return media, nil
}

// unsupported refuses a body, and lists the accepted types.
func unsupported(why string, accepted []string) *problem.Problem {
	list := strings.Join(accepted, ", ")
	return problem.New(problem.UnsupportedMedia, "%s; send %s", why, list).With("Accept-Post", list)
}

// IsJSON reports whether a media type is JSON.
func IsJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json"))
}

// Parse decodes a body strictly.
func Parse(body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, problem.New(problem.MalformedJSON, "the body is empty")
	}
	v, err := datum.ParseJSON(body)
	if wrong, ok := errors.AsType[*datum.JSONError](err); ok {
		return nil, problem.New(problem.MalformedJSON, "%s", wrong).At(problem.Fault{Location: wrong.Pointer, Message: wrong.Message})
	}
	return v, err
}

// JSON reads a body that must be application/json.
func (c *Call) JSON() (any, error) {
	if _, err := c.Media(MediaJSON); err != nil {
		return nil, err
	}
	body, err := c.Body()
	if err != nil {
		return nil, err
	}
	return Parse(body)
}

// optional is JSON for an optional body. An empty body of another type, as pages' forms send it, is
// refused.
func (c *Call) optional() (v any, given bool, err error) {
	if c.R.ContentLength != 0 {
		v, err = c.JSON()
		return v, true, err
	}
	if c.R.Header.Get("Content-Type") != "" {
		_, err = c.Media(MediaJSON)
	}
	return nil, false, err
}
