package tree

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// HostPort returns the dialled address of a URL: its host in lower case, and its port or that of its scheme.
func HostPort(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Port() != "" {
		return host
	}
	port := ":80"
	if strings.EqualFold(u.Scheme, "https") {
		port = ":443"
	}
	return strings.TrimSuffix(host, ":") + port
}

// BadHost returns why no server can be at the host or port of a URL, or "".
func BadHost(u *url.URL) string {
	host := strings.TrimSuffix(u.Hostname(), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		host = "address"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "the port is " + port + ": want a number from 1 to 65535"
		}
	}
	if len(host) > 253 {
		return "the name of the host is longer than 253 bytes"
	}
	for part := range strings.SplitSeq(host, ".") {
		odd := strings.IndexFunc(part, func(r rune) bool { return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		switch {
		case part == "":
			return fmt.Sprintf("there is no host %q: its dots have nothing between them", u.Hostname())
		case odd >= 0:
			r, _ := utf8.DecodeRuneInString(part[odd:])
			return fmt.Sprintf("there is no host %q: %q cannot stand in the name of a host", u.Hostname(), r)
		case strings.Trim(part, "-") != part:
			return fmt.Sprintf("there is no host %q: no part of the name of a host begins or ends with a hyphen", u.Hostname())
		case len(part) > 63:
			return "a part of the name of the host is longer than 63 bytes"
		}
	}
	return ""
}

// StandsForHost reports whether the host of a URL is only a placeholder. By the standards, no server has such a
// name.
func StandsForHost(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return host == "example" || host == "invalid" || strings.HasSuffix(host, ".invalid")
}
