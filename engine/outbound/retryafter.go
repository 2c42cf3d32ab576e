package outbound

import (
	"net/http"
	"strconv"
	"time"
)

// RetryAfter returns the delay that a reply asks for. ok is false if it asks for none.
func RetryAfter(h http.Header, now time.Time) (delay time.Duration, ok bool) {
	text := h.Get("Retry-After")
	// 32 bits are 136 years. A larger number is a mistake.
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}
