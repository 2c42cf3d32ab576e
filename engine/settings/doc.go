// Package settings holds what operators have set at run time, as this node knows it: live configs,
// controls and tokens.
package settings
