// Package explain explains why a handler ran in a run, or did not, and tells the story of runs.
package explain
