// Package diagram shows plans to people and programs: as text with the proof of every wait, as JSON,
// as a flowchart, and as a graph.
package diagram
