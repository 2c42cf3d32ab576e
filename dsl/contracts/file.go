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

// A File is one file of a set, after reading.
type File struct {
	Name, ID string      // as in [diag.File]
	Root     *expr.Value // nil if the file is empty or not YAML
	Found    []diag.Diagnostic
	Missing  error // why it could not be read; nil if it was

	// Foreign reports whether the file is a JSON Schema or an OpenAPI document, which need not fit the
	// language.
	Foreign bool
}

// Usable reports whether the file exists and is valid. Other errors were reported when it was read.
func (f *File) Usable() bool { return f != nil && f.Missing == nil && !diag.HasErrors(f.Found) }

// Target returns the name and the ID of the file that a text in this file names. It returns false if the text
// names no file, or one that must not be read. mustFile means that the text cannot be the name of a schema.
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

// IsSchemaName reports whether a text is the name of a schema. Names of files contain a dot or a slash.
func IsSchemaName(text string) bool { return datum.TextForms["id"].Expr.MatchString(text) }
