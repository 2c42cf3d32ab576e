package diag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The limits of Suggest keep many findings about many names fast. Longer words are no names, and only the first
// names are compared.
const (
	maxWord  = 100
	maxKnown = 2000
)

// Suggest returns the known word nearest to a mistyped one, or "". Among equally near words, the first wins.
// Case, hyphens and underscores hardly count.
func Suggest(word string, known []string) string {
	best, _ := SuggestTwo(word, known)
	return best
}

// SuggestTwo is Suggest, and also returns a second word that is equally near, or "".
func SuggestTwo(word string, known []string) (best, second string) {
	if len(word) > maxWord {
		return "", ""
	}
	least := 1 + max(1, len([]rune(word))/3)
	same := strings.NewReplacer("-", "", "_", "") // common confusions
	plain := []rune(same.Replace(strings.ToLower(word)))
	for _, k := range known[:min(len(known), maxKnown)] {
		if k == word || len(k) > maxWord {
			continue
		}
		other := []rune(same.Replace(strings.ToLower(k)))
		if len(plain)-len(other) >= least || len(other)-len(plain) >= least {
			continue
		}
		switch d := distance(plain, other); {
		case d < least:
			best, second, least = k, "", d
		case d == least && best != "" && k != best && second == "":
			second = k
		}
	}
	return best, second
}

// DidYouMean returns a hint with the nearest known word, or the two nearest if both are possible. It returns ""
// if none is near. quote surrounds each word.
func DidYouMean(word string, known []string, quote string) string {
	best, second := SuggestTwo(word, known)
	switch {
	case best == "":
		return ""
	case second != "":
		return "did you mean " + quote + best + quote + " or " + quote + second + quote + "?"
	}
	return "did you mean " + quote + best + quote + "?"
}

// Choice returns a hint that lists the known words, the most likely one first.
func Choice(word string, known []string, are string) string {
	hint := are + " " + strings.Join(known, ", ")
	if meant := DidYouMean(word, known, ""); meant != "" {
		hint = meant + " " + hint
	}
	return hint
}

// distance returns the number of characters to insert, remove, change or swap to turn a into b.
func distance(a, b []rune) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row := rows[0], rows[1], rows[2]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		rows[0], rows[1], rows[2] = last, row, before
	}
	return rows[1][len(b)]
}

// maxHints limits the suggestions of one reporter, since each compares all known names.
const maxHints = 100

// DidYouMean returns a hint for a mistyped name: the nearest known one, or the whole list if it is short.
func (r *Reporter) DidYouMean(name string, known func() []string) string {
	list := ""
	if r.hints < maxHints {
		if names := known(); len(names) > 0 && len(names) <= 8 {
			list = "known: " + strings.Join(names, ", ")
		}
	}
	return r.SuggestOr(name, known, list)
}

// SuggestOr returns a hint for a mistyped name, or other if no known name is near.
func (r *Reporter) SuggestOr(name string, known func() []string, other string) string {
	r.hints++
	if r.hints > maxHints {
		return other
	}
	return cmp.Or(DidYouMean(name, known(), `"`), other)
}

// NamesIn returns a function that lists the keys of a map.
func NamesIn[V any](m map[string]V) func() []string { return func() []string { return SortedKeys(m) } }

// SortedKeys returns the sorted keys of a map.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Plural returns a number with its noun, such as "2 errors".
func Plural(n int, noun string) string {
	if n == 1 || noun == "advice" {
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
