package rest

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"procaas/dsl/datum"
	"procaas/engine/api/problem"
)

// MaxWait is the longest time that a caller may wait for the end of a run.
const MaxWait = time.Minute

// A WaitQuery says how long a caller waits for the end of a run.
type WaitQuery struct {
	Wait   string `query:"wait" doc:"How long to wait for the end of the run, from 0s to 1m, such as 10s. Without it nobody waits."`
	Prefer string `header:"Prefer" bytes:"any" doc:"wait=10 waits for 10 seconds, as wait does in the query, which goes first. More than 60 seconds are 60: Preference-Applied says so."`
}

// For returns how long the caller waits, 0 for not at all. It sets the header that confirms a
// preference.
func (q *WaitQuery) For(c *Call) (time.Duration, error) {
	if q.Wait != "" {
		wait, err := datum.ParseDuration(q.Wait)
		if err != nil || wait < 0 || wait > MaxWait {
			return 0, problem.Parameter([]problem.Fault{{
				Location: "query/wait", Message: "want a duration from 0s to 1m, such as 10s, have " + Shown(q.Wait),
			}})
		}
		return wait, nil
	}
	text, ok := preferred(c.R.Header, "wait")
	if !ok {
		return 0, nil
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, problem.Parameter([]problem.Fault{{
			Location: "header/prefer", Message: "want a whole number of seconds from 0 to 60, such as wait=10, have " + Shown("wait="+text),
		}})
	}
	wait := min(time.Duration(seconds)*time.Second, MaxWait)
	c.W.Header().Set("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
	return wait, nil
}

// preferred returns the first preference of a name, as in RFC 7240.
func preferred(h http.Header, name string) (value string, ok bool) {
	for _, line := range h[textproto.CanonicalMIMEHeaderKey("Prefer")] {
		for one := range strings.SplitSeq(line, ",") {
			one, _, _ = strings.Cut(one, ";") // its parameters
			key, value, _ := strings.Cut(one, "=")
			if strings.EqualFold(strings.TrimSpace(key), name) {
				return strings.Trim(strings.TrimSpace(value), `"`), true
			}
		}
	}
	return "", false
}

// ForRun returns the time of a request that may have a [WaitQuery].
func ForRun(r *http.Request) time.Duration {
	if _, prefers := preferred(r.Header, "wait"); prefers || strings.Contains(r.URL.RawQuery, "wait=") {
		return MaxWait
	}
	return 0
}
