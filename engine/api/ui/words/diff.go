package words

import (
	"reflect"
	"slices"
	"strings"

	"procaas/dsl/expr"
	"procaas/engine/explain"
)

// A DiffLine is a line of one or of both texts.
type DiffLine struct {
	Class string // del, ins or same
	Sign  string
	Text  string
}

// maxDiff bounds the work of a comparison, in pairs of lines.
const maxDiff = 1 << 18

// Compare shows two values line by line: what has gone, what has come, what stays.
func Compare(before, after explain.StateValue) (out []DiffLine) {
	if before.Gone != "" || after.Gone != "" {
		for _, v := range []struct {
			explain.StateValue
			class, sign string
		}{{before, "del", "-"}, {after, "ins", "+"}} {
			text := v.Gone
			if text == "" {
				text = JSON(v.Value)
			} else {
				text = "(no longer known: " + text + ")"
			}
			for line := range strings.SplitSeq(text, "\n") {
				out = append(out, DiffLine{v.class, v.sign, line})
			}
		}
		return out
	}
	a, b := strings.Split(JSON(before.Value), "\n"), strings.Split(JSON(after.Value), "\n")
	if len(a)*len(b) > maxDiff {
		a, b = []string{"(too long to be compared)"}, b[:min(len(b), 100)]
	}
	// same[i][j] is how many lines of a[i:] and b[j:] stay.
	same := make([][]int, len(a)+1)
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i, v := range slices.Backward(a) {
		for j := len(b) - 1; j >= 0; j-- {
			same[i][j] = max(same[i+1][j], same[i][j+1])
			if v == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, DiffLine{"same", " ", a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || same[i+1][j] >= same[i][j+1]):
			out = append(out, DiffLine{"del", "-", a[i]})
			i++
		default:
			out = append(out, DiffLine{"ins", "+", b[j]})
			j++
		}
	}
	return out
}

// Differences compares two values line by line. It returns nil if they are equal.
func Differences(a, b any) []DiffLine {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return Compare(explain.StateValue{Value: a}, explain.StateValue{Value: b})
}

// Trace writes what an expression came from.
func Trace(t *expr.Trace) string {
	var b strings.Builder
	if err := expr.WriteTrace(&b, t, false); err != nil {
		return err.Error()
	}
	return b.String()
}
