package urls

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Errors of URLs continue a sentence that names the URL.
var (
	ErrPassword = errors.New("holds a password")
	ErrQuery    = errors.New("has a query or a fragment")
)

// Parse parses an absolute http or https URL of a server that can exist. Its errors continue a sentence that names
// the URL, and show what was written unless that may hold a password.
func Parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		if strings.Contains(text, "@") {
			text = "…"
		}
		return nil, fmt.Errorf("is not an absolute http or https URL: %q", text)
	}
	if problem := Problem(u); problem != "" {
		return nil, errors.New(problem)
	}
	return u, nil
}

// ParsePublic parses a URL that people read, so it has no password.
func ParsePublic(text string) (*url.URL, error) {
	u, err := Parse(text)
	if err == nil && u.User != nil {
		return nil, ErrPassword
	}
	return u, err
}

// ParseBase parses the address of a server to which paths are appended, and which people read: it has no
// password, query or fragment.
func ParseBase(text string) (*url.URL, error) {
	u, err := ParsePublic(text)
	switch {
	case err != nil:
		return nil, err
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, ErrQuery
	}
	return u, nil
}

// Problem returns why no server can be at the host or port of a URL, or "".
func Problem(u *url.URL) string {
	host := strings.TrimSuffix(u.Hostname(), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		host = "address"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "has the port " + port + ": want a number from 1 to 65535"
		}
	}
	if len(host) > 253 {
		return "has a host of more than 253 bytes"
	}
	for part := range strings.SplitSeq(host, ".") {
		odd := strings.IndexFunc(part, func(r rune) bool { return r != '-' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		switch {
		case part == "":
			return fmt.Sprintf("has an invalid host %q: its dots have nothing between them", u.Hostname())
		case odd >= 0:
			r, _ := utf8.DecodeRuneInString(part[odd:])
			return fmt.Sprintf("has an invalid host %q: %q cannot stand in the name of a host", u.Hostname(), r)
		case strings.Trim(part, "-") != part:
			return fmt.Sprintf("has an invalid host %q: no part of the name of a host begins or ends with a hyphen", u.Hostname())
		case len(part) > 63:
			return "has a host with a part of more than 63 bytes"
		}
	}
	return ""
}

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

// IsPlaceholder reports whether the host of a URL is a name that, by the standards, no server has.
func IsPlaceholder(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	return host == "example" || host == "invalid" || strings.HasSuffix(host, ".invalid")
}

// IsThisMachine reports whether a host, without a port, is the machine itself by one of its own names: a loopback
// address, localhost or a name below it.
func IsThisMachine(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || isLoopback(host)
}

// OnlyThisMachine reports whether only this machine reaches an address to listen on, such as 127.0.0.1:8080. A
// missing host means every address. A name other than localhost may be anything.
func OnlyThisMachine(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && (strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") || isLoopback(host))
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
