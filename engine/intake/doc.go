// Package intake checks events, finds their flow, key and pipeline, and accepts them.
package intake
