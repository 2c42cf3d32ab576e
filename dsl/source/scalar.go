package source

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Plain scalars that YAML 1.2 (core schema) does not read as text. yes, no, on and off are text there, and 0755
// is a decimal number.
var (
	decimalInt  = regexp.MustCompile(`^[-+]?[0-9]+$`)
	prefixedInt = regexp.MustCompile(`^(0o[0-7]+|0x[0-9a-fA-F]+)$`)
	decimal     = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
	notFinite   = regexp.MustCompile(`^([-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN)$`)
)

// isPlainText reports whether an unquoted scalar is text, as nearly all keys are.
func isPlainText(text string) bool {
	if text == "" || strings.ContainsRune("+-.0123456789~", rune(text[0])) {
		data, _ := PlainScalar(text)
		_, ok := data.(string)
		return ok
	}
	switch text {
	case "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE":
		return false
	}
	return true
}

// PlainScalar returns the value of an unquoted scalar. problem says why it has none.
func PlainScalar(text string) (data any, problem string) {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil, ""
	case "true", "True", "TRUE":
		return true, ""
	case "false", "False", "FALSE":
		return false, ""
	}
	if !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return text, ""
	}
	switch {
	case decimalInt.MatchString(text):
		i, err := strconv.Atoi(text)
		if err != nil {
			return nil, text + " needs more than 64 bits"
		}
		return i, ""
	case prefixedInt.MatchString(text):
		i, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			return nil, text + " needs more than 64 bits"
		}
		return int(i), ""
	case decimal.MatchString(text):
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) {
			return nil, text + " is too large for a number"
		}
		return f, ""
	case notFinite.MatchString(text):
		return nil, text + " is not a number that data can hold"
	}
	return text, ""
}

// taggedScalar returns the value of a scalar with a YAML tag.
func taggedScalar(tag, text string) (data any, problem string) {
	if tag == "!!str" {
		return text, ""
	}
	data, problem = PlainScalar(text)
	if problem != "" {
		return nil, problem
	}
	ok := false
	switch tag {
	case "!!null":
		ok = data == nil
	case "!!bool":
		_, ok = data.(bool)
	case "!!int":
		_, ok = data.(int)
	case "!!float":
		if i, isInt := data.(int); isInt {
			data = float64(i)
		}
		_, ok = data.(float64)
	}
	if !ok {
		return nil, strconv.Quote(text) + " is no " + tag
	}
	return data, ""
}
