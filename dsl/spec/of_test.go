package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"procaas/dsl/datum"
)

// everything has a field of each kind.
//
// It has a second paragraph
// of two lines:
//
//	and an example
//	of two lines
type everything struct {
	// Text is text.
	Text string `yaml:"text" default:"none"`

	// One is one of three.
	One string `yaml:"one" enum:"a,b,c"`

	// Flag is a truth value.
	Flag bool `yaml:"flag" default:"true"`

	// Small and Large are numbers.
	Small int `yaml:"small" min:"1" max:"9"`
	// Large is a number.
	Large int64 `yaml:"large"`

	// Share is a fraction.
	Share float64 `yaml:"share" default:"0.5"`

	// Wait is a duration.
	Wait time.Duration `yaml:"wait" default:"5s" min:"1ms"`

	// At is a time.
	At time.Time `yaml:"at"`

	// Size is a size.
	Size datum.Bytes `yaml:"size" default:"1MiB" max:"1GiB"`

	// Limit is a rate.
	Limit datum.Rate `yaml:"limit" default:"10/s"`

	// Who are names.
	Who Names `yaml:"who"`

	// List is a list.
	List []string `yaml:"list" default:"x,y"`

	// Counts is a list of numbers.
	Counts []int `yaml:"counts"`

	// Any is anything.
	Any any `yaml:"any"`

	// Map is a mapping.
	Map map[string]any `yaml:"map"`

	// Texts is a mapping of texts.
	Texts map[string]string `yaml:"texts"`

	// Lists is a mapping of lists.
	Lists map[string][]string `yaml:"lists"`

	// Inner is a mapping of its own.
	Inner *inner `yaml:"inner"`

	// Inners are many of them.
	Inners []inner `yaml:"inners"`

	// Maybe tells what was given from what was not.
	Maybe *int `yaml:"maybe" default:"7"`

	// Hidden is no field.
	Hidden func() `yaml:"-"`
}

// inner is below.
type inner struct {
	// Name is needed.
	Name string `yaml:"name" required:"true" pattern:"id"`

	// Again is the same once more.
	Again *inner `yaml:"again"`
}

const everythingSource = `package dsl

// everything has a field of each kind.
//
// It has a second paragraph
// of two lines:
//
//	and an example
//	of two lines
type everything struct {
	// Text is text.
	Text string
	// One is one of three.
	One string
	// Small and Large are numbers.
	Small, Large int
	// F is a field, described
	// in two lines.
	Flag, Share, Wait, At, Size, Limit, Who, List, Counts, Any, Map, Texts, Lists, Inner, Inners, Maybe int
}

// inner is below.
type inner struct {
	// Name is needed.
	Name string
	// Again is the same once more.
	Again *inner
}
`

func everythingSpec() *Spec { return Of(reflect.TypeFor[everything](), in(everythingSource)) }

// in returns what a source says.
func in(source string) Sources { return Read(fstest.MapFS{"source.go": {Data: []byte(source)}}) }

func TestSpecTakesItsProseFromComments(t *testing.T) {
	t.Parallel()
	s := everythingSpec()
	want := "everything has a field of each kind.\n\nIt has a second paragraph of two lines:\n\n\tand an example\n\tof two lines"
	if s.Doc != want {
		t.Errorf("have doc %q, want %q", s.Doc, want)
	}
	if have, want := s.Field("wait").Doc, "F is a field, described in two lines."; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
	if have := s.Field("inner").Spec.Field("again").Spec; have != s.Field("inner").Spec {
		t.Error("a recursive struct has more than one spec")
	}
	if f := s.Field("who"); !f.Names || f.Kind != datum.ListKind {
		t.Errorf("have %+v for names", f)
	}
}

func TestSpecOfPanicsAtBugs(t *testing.T) {
	t.Parallel()
	for want, bug := range map[string]func() reflect.Type{
		"is no struct": reflect.TypeFor[int],
		`want a tag yaml with a name`: func() reflect.Type {
			type T struct {
				A int
			}
			return reflect.TypeFor[T]()
		},
		`have "a,omitempty"`: func() reflect.Type {
			type T struct {
				A int `yaml:"a,omitempty"`
			}
			return reflect.TypeFor[T]()
		},
		`have "A_B"`: func() reflect.Type {
			type T struct {
				A int `yaml:"A_B"`
			}
			return reflect.TypeFor[T]()
		},
		`names two fields a`: func() reflect.Type {
			type T struct {
				A int `yaml:"a"`
				B int `yaml:"a"`
			}
			return reflect.TypeFor[T]()
		},
		`unknown tag defualt`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" defualt:"1"`
			}
			return reflect.TypeFor[T]()
		},
		`the tag required can only be`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" required:"yes"`
			}
			return reflect.TypeFor[T]()
		},
		`the tag expr can only be`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" expr:"never"`
			}
			return reflect.TypeFor[T]()
		},
		`unknown pattern "name"`: func() reflect.Type {
			type T struct {
				A string `yaml:"a" pattern:"name"`
			}
			return reflect.TypeFor[T]()
		},
		`enum and pattern are for text`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" enum:"1,2"`
			}
			return reflect.TypeFor[T]()
		},
		`the bound "x" makes no sense`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" min:"x"`
			}
			return reflect.TypeFor[T]()
		},
		`the bound "5" makes no sense`: func() reflect.Type {
			type T struct {
				A string `yaml:"a" max:"5"`
			}
			return reflect.TypeFor[T]()
		},
		`default makes no sense: want a duration`: func() reflect.Type {
			type T struct {
				A time.Duration `yaml:"a" default:"5"`
			}
			return reflect.TypeFor[T]()
		},
		`default makes no sense: want a or b`: func() reflect.Type {
			type T struct {
				A string `yaml:"a" enum:"a,b" default:"c"`
			}
			return reflect.TypeFor[T]()
		},
		`default makes no sense: want 2 or more`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" min:"2" default:"1"`
			}
			return reflect.TypeFor[T]()
		},
		`a mapping cannot have one`: func() reflect.Type {
			type T struct {
				A map[string]any `yaml:"a" default:"x"`
			}
			return reflect.TypeFor[T]()
		},
		`the tag kind cannot be "bool"`: func() reflect.Type {
			type T struct {
				A int `yaml:"a" kind:"bool"`
			}
			return reflect.TypeFor[T]()
		},
		`the tag kind cannot be "number"`: func() reflect.Type {
			type T struct {
				A any `yaml:"a" kind:"number"`
			}
			return reflect.TypeFor[T]()
		},
		`only a map can be inline`: func() reflect.Type {
			type T struct {
				A int `yaml:",inline"`
			}
			return reflect.TypeFor[T]()
		},
		`has two inline fields`: func() reflect.Type {
			type T struct {
				A map[string]any `yaml:",inline"`
				B map[string]any `yaml:",inline"`
			}
			return reflect.TypeFor[T]()
		},
		`a map needs text for keys`: func() reflect.Type {
			type T struct {
				A map[int]any `yaml:"a"`
			}
			return reflect.TypeFor[T]()
		},
		`the type uint is not supported`: func() reflect.Type {
			type T struct {
				A uint `yaml:"a"`
			}
			return reflect.TypeFor[T]()
		},
		`the type error is not supported`: func() reflect.Type {
			type T struct {
				A error `yaml:"a"`
			}
			return reflect.TypeFor[T]()
		},
		"embedded structs are not supported": func() reflect.Type {
			type T struct {
				Names `yaml:"a"`
			}
			return reflect.TypeFor[T]()
		},
		`T.C: undocumented`: func() reflect.Type {
			type T struct {
				C int `yaml:"c"`
			}
			return reflect.TypeFor[T]()
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if have := fmt.Sprint(recover()); !strings.Contains(have, want) {
					t.Errorf("have panic %q, want %q", have, want)
				}
			}()
			Of(bug(), in("package p\n\n// T is a type.\ntype T struct {\n// A and B are fields.\nA, B int\nC int\n}\n"))
		})
	}
	for _, tag := range []string{`yaml`, `yaml:x`, `yaml:"a" yaml:"b"`} {
		if tags, err := parseTag(tag); err == nil {
			t.Errorf("%s: have %v, want an error", tag, tags)
		}
	}
}

func TestDurationsRatesAndSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"300ms": "300ms", "1h30m": "1h30m0s", "7d": "168h0m0s", "1w1d": "192h0m0s", "1.5d": "36h0m0s", "0s": "0s", "5µs": "5µs",
		"106751d": "2562024h0m0s",
		"5":       "", "": "", "s": "", "-5s": "", "+5s": "", "5 s": "", "5S": "", "5y": "", "106752d": "", "9999999999h": "",
		"99999w9999999999h": "", ".5s": "", "1e3s": "",
	} {
		have, err := datum.ParseDuration(text)
		if err == nil && have.String() != want || err != nil && want != "" {
			t.Errorf("duration %q: have %v, %v, want %q", text, have, err, want)
		}
	}
	for text, want := range map[string]datum.Rate{
		"100/s": {Count: 100, Per: time.Second}, "5/m": {Count: 5, Per: time.Minute}, "0.5/h": {Count: 0.5, Per: time.Hour},
		"3/10s": {Count: 3, Per: 10 * time.Second}, "7/d": {Count: 7, Per: 24 * time.Hour},
		"5": {}, "0/s": {}, "-1/s": {}, "5/0s": {}, "5/x": {}, "/s": {}, "5/": {}, "5/s/s": {}, "x/s": {},
	} {
		have, err := datum.ParseRate(text)
		if have != want || (err == nil) != (want != datum.Rate{}) {
			t.Errorf("rate %q: have %v, %v, want %v", text, have, err, want)
		}
	}
	for text, want := range map[string]datum.Bytes{
		"500": 500, "500B": 500, "64KiB": 64 << 10, "1MiB": 1 << 20, "2 GiB": 2 << 30, "1kB": 1000, "1MB": 1e6, "7TiB": 7 << 40,
		"": -1, "KiB": -1, "-1": -1, "1.5MiB": -1, "1Kib": -1, "9999999999TiB": -1, "99999999999999999999": -1,
	} {
		have, err := datum.ParseBytes(text)
		if err != nil {
			have = -1
		}
		if have != want {
			t.Errorf("size %q: have %d, %v, want %d", text, have, err, want)
		}
	}
}
