// Package typing describes what is known of a value before it exists: its types, its members, and its possible
// words.
package typing
