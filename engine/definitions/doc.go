// Package definitions has bundles that are ready to run: the current one for new events, and those
// of runs. It also loads, tries and lists versions.
package definitions
