package dsl

// ParseJSON decodes one JSON value to data of the engine: nil, bool, int,
// float64, string, []any and map[string]any. Integers stay exact; one that
// needs more than 64 bits is an error, as are duplicate names, U+0000, invalid
// UTF-8, more than 64 levels and anything after the value. The error names the
// place as a JSON pointer and says what was expected.
func ParseJSON(data []byte) (any, error) { panic("dsl: ParseJSON is not written yet") }

// FormatJSON encodes data canonically: the names of objects are sorted, there
// is no white space and nothing is escaped needlessly, so that equal data gives
// equal bytes.
func FormatJSON(data any) ([]byte, error) { panic("dsl: FormatJSON is not written yet") }
