package language

import (
	"fmt"
	"strconv"
	"strings"
)

// A KeyPlace is the place of the key in requests to a cluster.
type KeyPlace struct {
	In      string // header, query or path
	Name    string // of the header or of the query parameter
	Segment int    // of the path, counted from 1
}

// ParseKeyPlace parses header:NAME, query:NAME or path:N. N is the segment of the path, counted from 1.
func ParseKeyPlace(text string) (KeyPlace, error) {
	in, name, _ := strings.Cut(text, ":")
	k := KeyPlace{In: in, Name: name}
	bad := fmt.Errorf("%q is no place of a key; want header:NAME, query:NAME or path:N, which is the segment of the path from 1", text)
	switch {
	case name == "" || strings.ContainsAny(name, " \t\r\n:"):
		return k, bad
	case in == "header", in == "query":
		return k, nil
	case in == "path":
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > 100 {
			return k, bad
		}
		return KeyPlace{In: in, Segment: n}, nil
	}
	return k, bad
}

// String returns the text that ParseKeyPlace parses.
func (k KeyPlace) String() string {
	if k.In == "path" {
		return fmt.Sprintf("path:%d", k.Segment)
	}
	return k.In + ":" + k.Name
}
