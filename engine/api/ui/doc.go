// Package ui is the console: the web page of a node. People see there what the engine does, find what is broken and
// switch it off.
//
// [Console] renders all pages on the server, so that they work without scripts. Scripts keep pages fresh, draw charts
// and replay runs. Pages that belong together are methods of one type: of runs, of switches, of submitted events, and
// of the systems beside the engine. What knows nothing of pages has packages of its own: words, drawing, fields, guide,
// and seen, which keeps samples.
package ui
