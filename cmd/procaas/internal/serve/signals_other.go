//go:build !unix

package serve

import "context"

// reloadOnHangup does nothing where there is no SIGHUP.
func (n *Node) reloadOnHangup(context.Context) {}
