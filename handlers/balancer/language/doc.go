// Package language has what the balancer adds to the language: the section clusters of files, with its check and its rules, and
// the partition maps that follow from it.
package language

import ()
