package contracts

import (
	"cmp"
	"net/url"
	"path"
	"strings"

	"procaas/dsl/datum"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A File is one file of a set, as it was read.
type File struct {
	Name, ID string      // as in [diag.File]
	Root     *expr.Value // nil when it is empty or no YAML
	Found    []diag.Diagnostic
	Missing  error // why it could not be read

	// Foreign says that the file is a JSON Schema or an OpenAPI document: what
	// stands in it is not held against the language.
	Foreign bool
}

// Usable reports whether the file is there and right; what is wrong with it is reported where it
// was read.
func (f *File) Usable() bool { return f != nil && f.Missing == nil && !diag.HasErrors(f.Found) }

// Target returns the name of the file that a text in this one names, and its ID; false when no
// file is meant, or none that may be read. mustFile says that the text can be nothing but a
// file, where else it may be the name of a schema.
func (f *File) Target(text string, mustFile bool) (name, id string, ok bool) {
	file, _, _ := strings.Cut(text, "#")
	if file == "" || strings.Contains(file, ":") || path.IsAbs(file) || !mustFile && IsSchemaName(file) {
		return "", "", false
	}
	if plain, err := url.PathUnescape(file); err == nil {
		file = plain
	}
	return path.Join(path.Dir(f.Name), file), path.Join(path.Dir(cmp.Or(f.ID, f.Name)), file), true
}

// IsSchemaName tells the names of schemas from files, which have a dot or a
// slash.
func IsSchemaName(text string) bool { return datum.TextForms["id"].Expr.MatchString(text) }
