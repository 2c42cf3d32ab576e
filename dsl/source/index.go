package source

import (
	"bytes"
	"regexp"

	"gopkg.in/yaml.v3"
)

// Inside {…} and […], YAML ends a plain scalar at any bracket, so that
//
//	query: {id: !$ event.payload['order-id']}
//
// would be a syntax error. An index right after a name has only one meaning, so it is accepted. Two private
// characters of the same length in runes hide its brackets from the YAML parser, so no position changes.
const (
	hiddenOpen  = '\ue0b0'
	hiddenClose = '\ue0b1'
)

// plainExpr finds the text of a plain expression up to the end of its entry or line. indexIn finds an
// unambiguous index in it.
var (
	plainExpr = regexp.MustCompile(`!\$[ \t]+[^'"|>{[\s](?:[^,{}[\]#\n]|\[[^,{}[\]#\n]*\])*`)
	indexIn   = regexp.MustCompile(`([\pL\pN_\])\x{e0b1}'"])\[([^,{}[\]#\n]*)\]`)
)

// hideIndexes hides the brackets of indexes in plain expressions. It reports whether there were any.
func (s *Source) hideIndexes() bool {
	if bytes.ContainsRune(s.Data, hiddenOpen) || bytes.ContainsRune(s.Data, hiddenClose) {
		return false
	}
	hidden := plainExpr.ReplaceAllFunc(s.Data, func(expr []byte) []byte {
		for {
			next := indexIn.ReplaceAll(expr, []byte("$1"+string(hiddenOpen)+"$2"+string(hiddenClose)))
			if bytes.Equal(next, expr) {
				return expr
			}
			expr = next
		}
	})
	if bytes.Equal(hidden, s.Data) {
		return false
	}
	s.Data, s.hidden = hidden, true
	return true
}

// showIndexes restores the brackets in the nodes.
func (s *Source) showIndexes(n *yaml.Node) {
	if !s.hidden {
		return
	}
	n.Value = string(bytes.Map(func(r rune) rune {
		switch r {
		case hiddenOpen:
			return '['
		case hiddenClose:
			return ']'
		}
		return r
	}, []byte(n.Value)))
	for _, child := range n.Content {
		s.showIndexes(child)
	}
}
