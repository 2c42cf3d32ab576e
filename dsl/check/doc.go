// Package check reports errors in schemas, services and pipelines. Small functions check one thing each. A walk
// through each pipeline follows the types of values and compiles expressions at their place.
package check
