// Package canary tries a new version of the pipelines on a share of the keys, and judges it against the old one
// over the same time. It is pure: nodes hand in what their runs came to, and one of them decides for all, together
// with fallbacks. state.go is a trial and its schedule, judge.go compares, watch.go is what a node sees of its runs.
//
// Keys are chosen by a hash, so that the keys of both versions are alike but for the version. So each comparison is
// an exact test: of so many failures in all, how likely is it that so many fall on the new version? Each share of keys
// is judged by itself, since traffic may have changed between two shares.
package canary
