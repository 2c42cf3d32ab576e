// Package writes holds what all writes of a node to its store have in common: sharing transactions,
// and knowing whether what is written arrives.
package writes
