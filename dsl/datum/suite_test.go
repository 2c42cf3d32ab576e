//go:build suites

package datum_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"procaas/dsl/datum"
)

// refusedJSON are the cases that are JSON, but are refused: a name that is given twice, and U+0000, which no store keeps.
var refusedJSON = []string{
	"y_object_duplicated_key", "y_object_duplicated_key_and_value", "y_object_escaped_null_in_key", "y_string_null_escape",
}

// mayBeRead are the cases of which the standard says nothing that are read: numbers that round to 0.
var mayBeRead = []string{"i_number_double_huge_neg_exp", "i_number_real_underflow"}

// TestPublicJSONSuite parses each case of github.com/nst/JSONTestSuite (test_parsing) in the folder json of PROCAAS_SUITES, as events,
// replies and payloads are parsed.
func TestPublicJSONSuite(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(os.Getenv("PROCAAS_SUITES"), "json", "test_parsing", "*.json"))
	if err != nil || len(files) < 300 {
		t.Fatalf("want the suite below PROCAAS_SUITES, have %d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		want := name[0] == 'y' && !slices.Contains(refusedJSON, name) || slices.Contains(mayBeRead, name)
		if _, err := datum.ParseJSON(data); (err == nil) != want {
			t.Errorf("%s: read %v, want %v: %v", name, err == nil, want, err)
		}
	}
}
