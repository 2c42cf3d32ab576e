// Package fields makes the fields of a form from the outline of a schema, and reads what somebody has filled in.
//
// The name of a field is the JSON pointer of its value, as in the faults that the API finds. The package knows nothing
// of pages and of events.
package fields
