package authoring

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"procaas/engine/api/cli"
)

// Each value that a field takes instead of a mapping, or of a list of values, is in what explain
// says of the field.
func TestExplainShowsAllValuesOfAllFields(t *testing.T) {
	t.Parallel()
	n := 0
	for _, of := range everyType() {
		for _, f := range of.Spec.Fields {
			field := f
			for f.Elem != nil && len(f.Enum)+len(f.Words) == 0 {
				f = f.Elem
			}
			for _, value := range append(append([]string{}, f.Enum...), f.Words...) {
				n++
				var out bytes.Buffer
				if err := explain(cli.Streams{Out: &out}, new(cobra.Command), field.Name); err != nil {
					t.Fatalf("explain %s: %v", field.Name, err)
				}
				if !strings.Contains(out.String(), "`"+value+"`") {
					t.Errorf("explain %s does not show %s of %s", field.Name, value, of.Name)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("want many values, have %d", n)
	}
}
