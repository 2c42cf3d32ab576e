package model

import (
	"strconv"
	"strings"
)

// A Split chooses the version of new runs: Old, or New for a share of the keys. Stores write the
// version into runs that they hand out. So a run keeps its version even if its node dies before it
// saves anything.
type Split struct {
	Old, New string // New is empty if there is only one version
	Percent  float64
}

// String returns the split as stores keep it. If there is only one version, it is that version.
func (s Split) String() string {
	if s.New == "" {
		return s.Old
	}
	return s.Old + "+" + s.New + "@" + strconv.FormatFloat(s.Percent, 'g', -1, 64)
}

// VersionFor returns the version of a key's runs by a split. It is always the same.
func VersionFor(split, flow, key string) string {
	old, rest, ok := strings.Cut(split, "+")
	if !ok {
		return split
	}
	now, share, _ := strings.Cut(rest, "@")
	// The version is part of the hash, so that a new version does not always start with the same
	// keys.
	if percent, err := strconv.ParseFloat(share, 64); err == nil && 100*Chance(flow+" "+key, now) < percent {
		return now
	}
	return old
}

// Chance returns a number from 0 up to, but not including, 1. It is always the same for two texts.
// It is FNV-1a with its bits mixed, because similar ids must not get similar numbers.
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
