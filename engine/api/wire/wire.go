// Package wire has the JSON messages between callers and the API. The tags of a field are its only
// declaration: requests are read, checked and described by them.
package wire

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// A Page is a part of a list.
type Page[T any] struct {
	Items []T     `json:"items" doc:"The elements of this page."`
	Next  *string `json:"next" doc:"The cursor of the next page; null at the end."`
}

// PageOf makes a page. Items is an array even if it is empty, so that programs can loop over it.
func PageOf[T any](items []T, next string) Page[T] {
	p := Page[T]{Items: items}
	if items == nil {
		p.Items = []T{}
	}
	if next != "" {
		p.Next = &next
	}
	return p
}

// A Duration is a duration in a request: text such as 90s, or a number of seconds.
type Duration time.Duration

// MarshalJSON implements [json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) {
	text := time.Duration(d).String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, none) {
			text = text[:len(text)-2]
		}
	}
	return json.Marshal(text)
}

// ETag returns a revision as an entity tag.
func ETag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }
