// Package diff says what one definition changes of another, in the words of authors: also which
// handlers wait for others then, which a diff of files does not show.
package diff
