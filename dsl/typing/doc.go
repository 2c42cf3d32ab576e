// Package typing describes what is known of a value before it exists: its shape, its members, and the words that
// it may be.
package typing
