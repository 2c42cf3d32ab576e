package fallback

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"procaas/dsl/tree"
)

// A Count has the outcomes of the calls of one second.
type Count struct {
	Second int64 `json:"second"` // Unix time
	Good   int   `json:"good,omitempty"`
	Bad    int   `json:"bad,omitempty"`
}

const (
	// longWindow is used when the handler's own window has too few calls.
	longWindow = 5 * time.Minute
	// coarse is the length in seconds of intervals that only the long window needs.
	coarse = 10
	// lasting is over how many seconds calls must fail. A failure of 2 s touches three seconds, of
	// which the first and the last are two apart.
	lasting = 3
)

// addCount adds to a handler's counts, which are ordered by time.
func addCount(counts []Count, c Count) []Count {
	i, found := slices.BinarySearchFunc(counts, c.Second, func(c Count, second int64) int { return cmp.Compare(c.Second, second) })
	if !found {
		return slices.Insert(counts, i, c)
	}
	counts[i].Good += c.Good
	counts[i].Bad += c.Bad
	return counts
}

// keepCounts drops counts that no window needs, and merges seconds that only the long one needs.
func keepCounts(counts []Count, window time.Duration, now time.Time) []Count {
	fine := now.Add(-window).Unix()
	last := now.Add(-max(window, longWindow)).Unix()
	kept := counts[:0]
	for _, c := range counts {
		if c.Second <= last-coarse {
			continue
		}
		if c.Second < fine {
			c.Second -= c.Second % coarse
		}
		if n := len(kept); n > 0 && kept[n-1].Second >= c.Second {
			kept[n-1].Good += c.Good
			kept[n-1].Bad += c.Bad
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// total sums the counts since a second.
func total(counts []Count, since int64) (good, bad int) {
	for _, c := range counts {
		if c.Second >= since {
			good += c.Good
			bad += c.Bad
		}
	}
	return good, bad
}

// streak returns the failures since the last second with a success, and the least number of seconds
// between the first and the last. Failures in that second do not count, because the success may
// have come after them, but they show since when calls fail. For fine, see failedFor.
func streak(counts []Count, fine int64) (failures int, seconds int64) {
	after := 0
	for i, c := range slices.Backward(counts) {
		if c.Good > 0 {
			after = i + 1
			break
		}
		failures += c.Bad
	}
	return failures, failedFor(counts[max(0, after-1):], 0, fine)
}

// well reports whether the last calls, a short while ago, succeeded.
func well(counts []Count, now time.Time) bool {
	failures, _ := streak(counts, 0)
	n := len(counts)
	return failures == 0 && n > 0 && now.Unix()-counts[n-1].Second <= int64(together/time.Second)
}

// judge reports whether to turn a handler off, and why: too few calls succeed, with enough
// certainty, or all have failed for a while.
func judge(counts []Count, f *tree.Fallback, now time.Time) (string, bool) {
	fine := now.Add(-f.Window).Unix()
	good, bad, window := counted(counts, f, now)
	n := good + bad
	if n >= f.MinCalls && upperBound(good, n) < f.MinSuccessRatio && failedFor(counts, now.Add(-window).Unix(), fine) >= lasting {
		return describe(good, bad, window) + slowly(f), true
	}
	if failures, seconds := streak(counts, fine); seconds >= lasting && failures >= streakNeeded(f) {
		return fmt.Sprintf("%d calls in a row failed, over %v", failures, time.Duration(seconds)*time.Second) + slowly(f), true
	}
	return "", false
}

// slowly says that calls may have counted as failures because they were slow.
func slowly(f *tree.Fallback) string {
	if f.SlowerThan == 0 {
		return ""
	}
	return fmt.Sprintf("; calls slower than %v count as failed", f.SlowerThan)
}

// counted sums the counts that matter, and returns over which time.
func counted(counts []Count, f *tree.Fallback, now time.Time) (good, bad int, window time.Duration) {
	window = f.Window
	good, bad = total(counts, now.Add(-window).Unix())
	if good+bad < f.MinCalls {
		window = max(window, longWindow)
		good, bad = total(counts, now.Add(-window).Unix())
	}
	return good, bad, window
}

// failedFor returns the least number of seconds between the first failure since a time and the
// last. Seconds before fine were merged, so a failure may have been in the last of them.
func failedFor(counts []Count, since, fine int64) int64 {
	first, last := int64(0), int64(0)
	for _, c := range counts {
		if c.Bad == 0 || c.Second < since {
			continue
		}
		if first == 0 {
			first = c.Second
			if first < fine {
				first += coarse - 1
			}
		}
		last = c.Second
	}
	return last - first
}

// streakNeeded is how many failures in a row cannot be chance. A handler that succeeds just often
// enough has as many in a thousandth of all cases.
func streakNeeded(f *tree.Fallback) int {
	chance := math.Log(0.001) / math.Log1p(-f.MinSuccessRatio)
	return max(10, f.MinCalls, int(math.Min(math.Ceil(chance), math.MaxInt32)))
}

// ratioOf returns the ratio of good to n, rounded to 3 digits.
func ratioOf(good, n int) float64 { return math.Round(1000*float64(good)/float64(n)) / 1000 }

// upperBound returns the highest likely success ratio: the upper end of Wilson's interval,
// one-sided, at 95 %.
func upperBound(good, n int) float64 {
	const z = 1.6449
	p, m := float64(good)/float64(n), float64(n)
	return (p + z*z/(2*m) + z*math.Sqrt(p*(1-p)/m+z*z/(4*m*m))) / (1 + z*z/m)
}
