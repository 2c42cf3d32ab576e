// Package webhooks takes events from providers that sign their HTTP requests: each scheme is the same HMAC with other
// headers. A request whose signature holds becomes an event, by the expressions of its webhook.
package webhooks

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"procaas/engine/outbound"
	"procaas/handlers/webhooks/language"
)

// A scheme says how a provider signs a request.
type scheme struct {
	header    string // of the signatures
	version   string // what stands before each of them
	timestamp string // header of the time; empty for none. Stripe has it beside the signature, as t=
	id        string // header of the delivery's id, which is signed, too; empty for none
	between   string // characters between two signatures
	signed    string // text with {id}, {timestamp} and {body}
	base64    bool   // instead of hexadecimal digits
	hash      func() hash.Hash
	prefixed  bool // the secret is base64 behind whsec_
}

// These are the schemes by what their providers document: docs.github.com/webhooks, docs.stripe.com/webhooks/signature,
// docs.slack.dev/authentication/verifying-requests-from-slack and the specification of Standard Webhooks.
var schemes = map[string]scheme{
	"github": {header: "X-Hub-Signature-256", version: "sha256=", signed: "{body}", hash: sha256.New},
	"stripe": {header: "Stripe-Signature", version: "v1=", between: ",", signed: "{timestamp}.{body}", hash: sha256.New},
	"slack": {
		header: "X-Slack-Signature", version: "v0=", timestamp: "X-Slack-Request-Timestamp", signed: "v0:{timestamp}:{body}", hash: sha256.New,
	},
	"standard": {
		header: "Webhook-Signature", version: "v1,", timestamp: "Webhook-Timestamp", id: "Webhook-Id", between: " ",
		signed: "{id}.{timestamp}.{body}", base64: true, hash: sha256.New, prefixed: true,
	},
}

var hashes = map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

// schemeOf returns the scheme of a webhook.
func schemeOf(w *language.Webhook) scheme {
	s := w.Signature
	if s == nil {
		return schemes[w.Scheme]
	}
	between := ", "
	if strings.Contains(s.Prefix, ",") {
		between = " "
	}
	return scheme{
		header: s.Header, version: s.Prefix, timestamp: s.Timestamp, between: between, signed: s.Signed, base64: s.Encoding == "base64",
		hash: hashes[s.Hash],
	}
}

// A RefusedError says why a request is not from its provider. It is for the person who set the webhook up, and says
// nothing about the secret.
type RefusedError struct{ Message string }

// Error implements error.
func (e *RefusedError) Error() string { return e.Message }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// Verify returns an error if no secret made a signature of the request, or if the signature's time is too far from now.
// The error is a [*RefusedError].
func Verify(w *language.Webhook, h http.Header, body []byte, secrets []string, now time.Time) error {
	s := schemeOf(w)
	text := strings.Join(h.Values(s.header), cmp.Or(s.between, ",")[:1])
	if text == "" {
		return refused("the header %s with the signature is missing", s.header)
	}
	found := s.signatures(text)
	if len(found) == 0 {
		return refused("the header %s has no signature %s…", s.header, s.version)
	}
	stamp := s.stampOf(h, text)
	genuine := false
	for _, secret := range secrets {
		want, err := s.sign(secret, h.Get(s.id), stamp, body)
		if err != nil {
			return err
		}
		for _, have := range found {
			// No early end: how long it takes says nothing.
			if hmac.Equal(have, want) {
				genuine = true
			}
		}
	}
	if !genuine {
		return refused("no secret of webhook %s made the signature: the body was changed on its way, or the provider has another secret", w.ID)
	}
	if strings.Contains(s.signed, "{timestamp}") {
		return fresh(stamp, w.Tolerance, now)
	}
	return nil
}

// mostAhead is how far ahead a clock may be before its time is taken for another unit, in seconds.
const mostAhead = 365 * 24 * 3600

// fresh returns an error if a signature is too old to be one of now, or from the future.
func fresh(stamp string, tolerance time.Duration, now time.Time) error {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return refused("the time of the signature is no number of seconds")
	}
	// In seconds, because a time of milliseconds is further away than a duration can say.
	off, most := now.Unix()-seconds, int64(tolerance/time.Second)
	switch {
	case off < -mostAhead:
		return refused("the time of the signature, %s, is no Unix time in seconds", stamp)
	case off > most:
		return refused("the signature is %d s old, over the tolerance of %s: it is an old request again, or a clock is wrong", off, tolerance)
	case off < -most:
		return refused("the signature is from %d s ahead, over the tolerance of %s: a clock is wrong", -off, tolerance)
	}
	return nil
}

// signatures decodes those of a header. It leaves out what is none of this version.
func (s *scheme) signatures(text string) (all [][]byte) {
	parts := []string{text}
	if s.between != "" {
		parts = strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(s.between, r) })
	}
	for _, part := range parts {
		encoded, ok := strings.CutPrefix(strings.TrimSpace(part), s.version)
		if !ok {
			continue
		}
		decode := hex.DecodeString
		if s.base64 {
			decode = base64.StdEncoding.DecodeString
		}
		if sum, err := decode(encoded); err == nil {
			all = append(all, sum)
		}
	}
	return all
}

// stampOf returns the time of a signature as it was signed.
func (s *scheme) stampOf(h http.Header, signature string) string {
	if s.timestamp != "" {
		return h.Get(s.timestamp)
	}
	for part := range strings.SplitSeq(signature, ",") {
		if stamp, ok := strings.CutPrefix(strings.TrimSpace(part), "t="); ok {
			return stamp
		}
	}
	return ""
}

// sign computes a signature.
func (s *scheme) sign(secret, id, stamp string, body []byte) ([]byte, error) {
	key := []byte(secret)
	if s.prefixed {
		decoded, err := outbound.WebhookKey(secret)
		if err != nil {
			return nil, err
		}
		key = decoded
	}
	mac := hmac.New(s.hash, key)
	before, after, _ := strings.Cut(s.signed, "{body}")
	named := strings.NewReplacer("{id}", id, "{timestamp}", stamp)
	mac.Write([]byte(named.Replace(before)))
	mac.Write(body)
	mac.Write([]byte(named.Replace(after)))
	return mac.Sum(nil), nil
}

// Sign returns the headers with which the provider of a webhook would send a body: what tests and people need who try a
// webhook. id is that of the delivery.
func Sign(w *language.Webhook, body []byte, secret, id string, now time.Time) (http.Header, error) {
	s := schemeOf(w)
	stamp := strconv.FormatInt(now.Unix(), 10)
	sum, err := s.sign(secret, id, stamp, body)
	if err != nil {
		return nil, err
	}
	encoded := hex.EncodeToString(sum)
	if s.base64 {
		encoded = base64.StdEncoding.EncodeToString(sum)
	}
	h := http.Header{}
	h.Set(s.header, s.version+encoded)
	switch {
	case s.timestamp != "":
		h.Set(s.timestamp, stamp)
	case w.Scheme == "stripe":
		h.Set(s.header, "t="+stamp+","+s.version+encoded)
	}
	if s.id != "" {
		h.Set(s.id, id)
	}
	if w.Scheme == "github" {
		h.Set("X-Github-Delivery", id)
	}
	return h, nil
}

// SignedAt returns the time of a request's signature, or otherwise if it has none.
func SignedAt(w *language.Webhook, h http.Header, otherwise time.Time) time.Time {
	s := schemeOf(w)
	seconds, err := strconv.ParseInt(s.stampOf(h, strings.Join(h.Values(s.header), ",")), 10, 64)
	if err != nil {
		return otherwise
	}
	return time.Unix(seconds, 0)
}
