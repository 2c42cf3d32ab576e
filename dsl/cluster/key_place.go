package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// A KeyPlace says where requests to a cluster have their key.
type KeyPlace struct {
	In      string // header, query or path
	Name    string // of the header or of the parameter
	Segment int    // of the path, from 1
}

// ParseKeyPlace reads header:NAME, query:NAME or path:N, the segment of the path from 1.
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

// String returns the place as it is written.
func (k KeyPlace) String() string {
	if k.In == "path" {
		return fmt.Sprintf("path:%d", k.Segment)
	}
	return k.In + ":" + k.Name
}
