//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package engine

// canPeek says that a connection can be asked whether something has come.
const canPeek = false

func hasInput(uintptr) (something, response bool) { return true, false }
