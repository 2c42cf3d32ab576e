// Package check finds what is wrong with schemas, services and pipelines. Small checks look at one thing each; a walk
// through each pipeline follows what is known of values, and compiles expressions where they stand.
package check
