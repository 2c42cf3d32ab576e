// Package diff shows the differences between two definitions in authors' terms. It includes changes
// of which handlers wait for others, which a diff of files does not show.
package diff
