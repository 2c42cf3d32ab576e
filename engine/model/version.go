package model

import (
	"strconv"
	"strings"
)

// A Split says which version new runs use: Old, or New for a share of the keys. Stores write it into runs that they
// give out, so that a run keeps its version even when its node dies before it saves anything.
type Split struct {
	Old, New string // New is empty when there is only one
	Percent  float64
}

// String returns the split as stores keep it: the version when there is only one.
func (s Split) String() string {
	if s.New == "" {
		return s.Old
	}
	return s.Old + "+" + s.New + "@" + strconv.FormatFloat(s.Percent, 'g', -1, 64)
}

// VersionFor returns the version of the runs of a key by a split, always the same.
func VersionFor(split, flow, key string) string {
	old, rest, ok := strings.Cut(split, "+")
	if !ok {
		return split
	}
	now, share, _ := strings.Cut(rest, "@")
	// Each version has keys of its own, so that no key comes first always.
	if percent, err := strconv.ParseFloat(share, 64); err == nil && 100*Chance(flow+" "+key, now) < percent {
		return now
	}
	return old
}

// Chance is a number from 0 up to 1, always the same for two texts. It is FNV-1a with its bits mixed, since ids that follow each other
// must not stand together.
func Chance(a, b string) float64 {
	h := uint64(14695981039346656037)
	for _, text := range [2]string{a, b} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return float64(h>>11) / (1 << 53)
}
