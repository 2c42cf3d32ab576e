// Package steps lays a pipeline out as the steps that a run takes through it, and finds what each of them sets. Checks,
// the proof of degradation and advice all look at pipelines so.
package steps
