//go:build !unix

package main

import "context"

// reloadOnHangup does nothing where there is no SIGHUP.
func (n *node) reloadOnHangup(context.Context) {}
