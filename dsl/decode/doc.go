// Package decode turns files into the structs of package tree: values with places are held against the language,
// templates are put where they are used, and files that others name are read as well.
package decode
