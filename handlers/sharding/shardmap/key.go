package shardmap

import (
	"fmt"
	"strings"

	"procaas/handlers/sharding/transfers"
)

// A Key is what a client asks for: its parts, widest first.
type Key []string

// maxKey bounds the text of a key.
const maxKey = 1000

// ErrKey reports that a text is not a key of the map.
var ErrKey = transfers.ErrShardKey

// The first characters of slots and stretches are escaped, too.
var (
	escapeKey   = strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23", "[", "%5B")
	unescapeKey = strings.NewReplacer("%25", "%", "%2F", "/", "%23", "#", "%5B", "[")
)

// String formats a key in the form of the map.
func (k Key) String() string {
	parts := make([]string, len(k))
	for i, p := range k {
		parts[i] = escapeKey.Replace(p)
	}
	return strings.Join(parts, "/")
}

// parseKey parses the form of [Key.String]. It refuses any other form, so that a key has only one
// name.
func parseKey(text string) (Key, error) {
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

// cutLast removes the last part of a key in its text form. ok is false if it has only one.
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
