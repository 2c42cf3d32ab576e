// Package steps turns a pipeline into the steps of a run, and finds what each step sets. Checks, the proof of
// degradation and advice use it.
package steps
