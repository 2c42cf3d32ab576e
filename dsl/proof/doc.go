// Package proof shows that critical handlers get along without those that are not: a fallback, a switch or a failure
// may take those out at any time.
package proof
