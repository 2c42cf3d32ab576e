// Package writes has what all writes of a node share: combined transactions, and whether writes
// currently succeed.
package writes
