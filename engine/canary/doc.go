// Package canary tries a new version of the pipelines on a share of the keys, and compares it with
// the old one over the same time. It does no I/O. Nodes report the outcomes of their runs, and one
// node decides for all, together with fallbacks. state.go has a trial and its schedule. judge.go
// compares. watch.go observes the runs of a node.
//
// A hash chooses the keys, so the keys of both versions are alike except for the version. So each
// comparison is an exact test: given the number of all failures, how likely is it that this many
// belong to the new version? Each share of keys is judged separately, because traffic may have
// changed between two shares.
package canary
