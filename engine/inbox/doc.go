// Package inbox says what operators see of an inbox over several databases, and do to it.
package inbox
