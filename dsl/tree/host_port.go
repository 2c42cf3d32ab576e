package tree

import (
	"net/url"
	"strings"
)

// HostPort gives what a URL is dialled at: its host in lower case, and its port or that of
// its scheme.
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
