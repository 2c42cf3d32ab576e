// Package records shows runs and changes in readable form, changes runs for operators, and deletes
// old records.
package records
