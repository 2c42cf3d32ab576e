// Package merge combines the documents of all files into one bundle. It reports duplicates and declarations in
// the wrong place.
package merge
