// Package definitions keeps bundles that are ready to run: the present one, for new events, and
// those that runs began with.
package definitions
