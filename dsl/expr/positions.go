package expr

import (
	"slices"

	"procaas/dsl/diag"
)

// Positions has the position of each rune of a text, and of its end. The zero value has none: the text has no place.
type Positions struct {
	start diag.Pos
	count int
	each  []diag.Pos // nil if all are on one line, one behind the other, as nearly always
}

// OnLine returns the positions of a text of some runes that begins at a position and stays on its line.
func OnLine(start diag.Pos, runes int) Positions { return Positions{start: start, count: runes + 1} }

// Places returns positions that are listed.
func Places(each []diag.Pos) Positions { return Positions{count: len(each), each: each} }

// Len returns how many positions there are, one more than the text has runes.
func (p Positions) Len() int { return p.count }

// At returns one of the positions.
func (p Positions) At(i int) diag.Pos {
	if p.each != nil {
		return p.each[i]
	}
	return diag.Pos{Line: p.start.Line, Column: p.start.Column + i}
}

// Append adds the positions from..to to a list.
func (p Positions) Append(list []diag.Pos, from, to int) []diag.Pos {
	for i := from; i < to; i++ {
		list = append(list, p.At(i))
	}
	return list
}

// Index returns which of the positions is at a place, or -1.
func (p Positions) Index(at diag.Pos) int {
	if p.each != nil {
		return slices.Index(p.each, at)
	}
	if i := at.Column - p.start.Column; at.Line == p.start.Line && 0 <= i && i < p.count {
		return i
	}
	return -1
}
