// Package settings has operators' run-time settings, as this node knows them: live configs,
// controls and tokens.
package settings
