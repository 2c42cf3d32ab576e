package pgkit

import (
	"regexp"
	"strings"
)

// IsDSN reports whether the address of a store is one of PostgreSQL.
func IsDSN(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// passwordParam finds a password in the parameters of a DSN.
var passwordParam = regexp.MustCompile(`(?i)\b((?:ssl)?password)=[^&]*`)

// Redact hides the passwords in the address of a store.
func Redact(dsn string) string {
	scheme, rest, ok := strings.Cut(dsn, "://")
	if !ok {
		return dsn
	}
	rest = passwordParam.ReplaceAllString(rest, "$1=***")
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return scheme + "://" + rest
	}
	user, _, _ := strings.Cut(rest[:at], ":")
	return scheme + "://" + user + "@" + rest[at+1:]
}
