// Package inbox has operators' view of an inbox over several databases, and their orders.
package inbox
