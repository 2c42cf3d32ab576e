// Package secrets hands the secrets of a call out, and takes them out of all that the call leaves
// behind: its error, its response, and what is logged of it.
package secrets
