// Package diagram shows plans: as text with the cause of every wait, as JSON, as a flowchart, and
// as a graph.
package diagram
