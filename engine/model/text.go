package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"
)

// CleanText makes a text that any store can keep: short, valid UTF-8, and without U+0000.
func CleanText(text string) string {
	const longest = 2000
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) > longest {
		cut := longest
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Digest returns 32 hexadecimal digits that depend only on the parts.
func Digest(parts ...string) string {
	var few [256]byte // enough for most
	text := few[:0]
	for i, part := range parts {
		if i > 0 {
			text = append(text, 0)
		}
		text = append(text, part...)
	}
	sum := sha256.Sum256(text)
	var digits [32]byte
	hex.Encode(digits[:], sum[:16])
	return string(digits[:])
}

// Stamp rounds a time to what checkpoints keep. It cuts off at once what a store may lose, so that
// a resumed run is the same.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// TimeData converts a time to its form in expressions.
func TimeData(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// EventData is the root event.
func EventData(e Event) map[string]any {
	data := map[string]any{
		"id": e.ID, "type": e.Type, "source": e.Source, "time": TimeData(e.Time),
		"key": nil, "payload": e.Payload,
	}
	if e.Key != "" {
		data["key"] = e.Key // only if set, so that event.key ?? … works
	}
	return data
}

// IdentityOf returns what the keys of calls are derived from if the sender has chosen the event's
// id.
func IdentityOf(e Event) string { return Digest("event", e.Source, e.ID) }

// TimeOrNil returns nil for the zero time.
func TimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Moment returns a time in the form for people and programs, or nil for the zero time.
func Moment(t time.Time) *time.Time { return TimeOrNil(t.UTC().Truncate(time.Millisecond)) }
