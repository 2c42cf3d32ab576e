package datum_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"procaas/dsl/datum"
)

// texts are documents of about a quarter of a mebibyte, by what they consist of.
func texts() map[string]string {
	list := func(item string) string {
		n := (1 << 18) / (len(item) + 1)
		return "[" + strings.Repeat(item+",", n-1) + item + "]"
	}
	object := map[string]int{}
	for i := range 20_000 {
		object[fmt.Sprint("k", i)] = i
	}
	names, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	out := map[string]string{"names": string(names)}
	for _, item := range []string{
		`{}`, `{"a":0}`, `[]`, `0`, `1.5`, `null`, `""`, `"a"`, `[0]`, `{"a":{"b":{}}}`, `12345`, `"\u00e4"`,
		`{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8}`, `{"id": 12345, "name": "of a thing", "price": 12.5}`,
		`"` + strings.Repeat("x", 1000) + `"`,
	} {
		out[item[:min(len(item), 20)]] = list(item)
	}
	return out
}

// Not parallel, because it measures the heap.
func TestSizesAreThoseOfTheHeap(t *testing.T) {
	heap := func() int {
		runtime.GC()
		runtime.GC() // the first one may have found a sweep under way
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for name, text := range texts() {
		data := []byte(text)
		before := heap()
		v, err := datum.ParseJSON(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		took := heap() - before
		decoded, size := datum.DecodedSize(data), datum.Size(v)
		runtime.KeepAlive(v)
		runtime.KeepAlive(data)
		const noise = 64 << 10
		if decoded < took-noise || decoded > 4*took+8*len(data)+noise {
			t.Errorf("%s: the text says %d bytes, and decoded it takes %d", name, decoded, took)
		}
		if size < took-noise || size > 4*took+8*len(data)+noise {
			t.Errorf("%s: the data says %d bytes, and it takes %d", name, size, took)
		}
	}
}

// Whoever sends a text that is no JSON must not make the node count wrong.
func TestSizeOfATextThatIsNoJSON(t *testing.T) {
	t.Parallel()
	for text, least := range map[string]int{
		strings.Repeat("[", 1000): 1000, strings.Repeat(`{"a":`, 1000): 1000, `"` + strings.Repeat("x", 1000): 1000,
		strings.Repeat("}", 1000): 0, `"\`: 0, ``: 0,
	} {
		if n := datum.DecodedSize([]byte(text)); n < least {
			t.Errorf("want at least %d bytes for %.20s…, have %d", least, text, n)
		}
	}
}
