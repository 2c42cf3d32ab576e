package main

import "runtime/debug"

// stamp is set by the build to what git describes; empty otherwise.
var stamp string

// version tells what was built.
func version() string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
