// Package decode turns files into the structs of package tree. It checks values against the language, expands
// templates, and reads files that others name.
package decode
