package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"
)

// CleanText makes a text fit for any store: short, valid and without U+0000.
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

// Digest gives 32 hexadecimal digits that follow from the parts alone.
func Digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// Stamp is a time as checkpoints keep it: what a store may lose of it is cut off
// at once, so that a resumed run is the same.
func Stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// TimeData is a time as expressions see it.
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
		data["key"] = e.Key // so that event.key ?? … finds another one
	}
	return data
}

// IdentityOf is what keys of calls follow from when the sender has chosen the event's id.
func IdentityOf(e Event) string { return Digest("event", e.Source, e.ID) }

// TimeOrNil returns nil for a time that is not known.
func TimeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Moment is a time as people and programs see it; nil for none.
func Moment(t time.Time) *time.Time { return TimeOrNil(t.UTC().Truncate(time.Millisecond)) }
