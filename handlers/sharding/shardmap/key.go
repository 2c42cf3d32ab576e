package shardmap

import (
	"fmt"
	"strings"

	"procaas/engine/transfers"
)

// A Key is what a client asks for: its parts, the widest first.
type Key []string

// maxKey bounds the text of a key.
const maxKey = 1000

// ErrKey reports that a text is no key of the map.
var ErrKey = transfers.ErrShardKey

// What the names of slots and stretches begin with is escaped, too.
var (
	escapeKey   = strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23", "[", "%5B")
	unescapeKey = strings.NewReplacer("%25", "%", "%2F", "/", "%23", "#", "%5B", "[")
)

// String writes a key in the form that the map knows it by.
func (k Key) String() string {
	parts := make([]string, len(k))
	for i, p := range k {
		parts[i] = escapeKey.Replace(p)
	}
	return strings.Join(parts, "/")
}

// ParseKey reads the form of [Key.String]. Any other form of the same key is refused,
// so that a key has one name only.
func ParseKey(text string) (Key, error) {
	if text == "" || len(text) > maxKey || strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("%w: want 1 to %d bytes of text", ErrKey, maxKey)
	}
	parts := strings.Split(text, "/")
	for i, p := range parts {
		if p == "" {
			return nil, fmt.Errorf("%w: part %d of %q is empty", ErrKey, i+1, text)
		}
		if !strings.ContainsAny(p, "%#[") {
			continue
		}
		parts[i] = unescapeKey.Replace(p)
		if escapeKey.Replace(parts[i]) != p {
			return nil, fmt.Errorf("%w: in %q, write %% / # [ within a part as %%25 %%2F %%23 %%5B", ErrKey, text)
		}
	}
	return parts, nil
}

// cutLast drops the last part of a key in its text form; false when it has one only.
func cutLast(key string) (string, bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return "", false
	}
	return key[:i], true
}

// firstPart returns the first part of a key in its text form.
func firstPart(key string) string {
	first, _, _ := strings.Cut(key, "/")
	if strings.Contains(first, "%") {
		first = unescapeKey.Replace(first)
	}
	return first
}
