package datum

// This file tells how much memory data takes. Small objects take up to 45 times as much as their JSON
// text, so the length of a text says little. The numbers are those of Go's maps, slices and strings
// on 64-bit machines, rounded up, with room for lists that grow while they are decoded.

const (
	sizeOfItem    = 24  // a place in a list that may grow by half
	sizeOfList    = 40  // a list without its places
	sizeOfObject  = 48  // an object without names
	sizeOfSmall   = 336 // an object of 1 to 8 names
	sizeOfName    = 72  // each name of a larger object
	sizeOfText    = 32  // a string without its bytes
	sizeOfNumber  = 8
	smallestLarge = 9 // names
)

// sizeOfNames returns the size of an object with n names, without names and values.
func sizeOfNames(n int) int {
	switch {
	case n == 0:
		return sizeOfObject
	case n < smallestLarge:
		return sizeOfSmall
	}
	return sizeOfObject + n*sizeOfName
}

// Size estimates the bytes of memory that data takes.
func Size(data any) int {
	switch v := data.(type) {
	case nil, bool:
		return 0
	case int, float64:
		return sizeOfNumber
	case string:
		return sizeOfText + len(v)
	case []any:
		n := sizeOfList + len(v)*sizeOfItem
		for _, x := range v {
			n += Size(x)
		}
		return n
	case map[string]any:
		n := sizeOfNames(len(v))
		for name, x := range v {
			n += len(name) + Size(x)
		}
		return n
	}
	return sizeOfText
}

// DecodedSize estimates the bytes of memory that a JSON text takes when it is decoded. It reads the
// text once and allocates nothing. It does not check the text: for a text that is not JSON, it
// returns at least what a decoder allocates before it finds out.
func DecodedSize(text []byte) int {
	var names [MaxLevels + 1]int // of the open objects; 0 for lists
	n, level := sizeOfItem, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			end := endOfText(text, i+1)
			n += sizeOfText + end - i
			i = end
		case '[', '{':
			n += sizeOfList + sizeOfItem
			if c == '{' {
				n += sizeOfObject - sizeOfList
			}
			level++
			if level < len(names) {
				names[level] = 0
			}
		case ',':
			n += sizeOfItem
		case ':':
			if level < len(names) {
				n += sizeOfNames(names[level]+1) - sizeOfNames(names[level])
				names[level]++
			}
		case ']', '}':
			level = max(0, level-1)
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			n += sizeOfNumber
			for i+1 < len(text) && isNumeric(text[i+1]) {
				i++
			}
		}
	}
	return n
}

// endOfText returns the position of the quote that ends a string, or the end of the text.
func endOfText(text []byte, i int) int {
	for ; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i, len(text))
}

// isNumeric reports whether a byte may be a part of a number.
func isNumeric(c byte) bool {
	return isDigit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}
