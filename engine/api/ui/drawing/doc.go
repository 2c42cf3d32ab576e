// Package drawing draws what pages of the console show: sparklines, the graph of a pipeline, the time line and the
// history of a run, and the automaton of a flow.
//
// The results are data for templates. The browser lays graphs out. The package knows nothing of pages and of the
// engine that runs.
package drawing
