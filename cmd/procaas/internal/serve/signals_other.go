//go:build !unix

package serve

import "context"

// reloadOnHangup does nothing on systems without SIGHUP.
func (n *Node) reloadOnHangup(context.Context) {}
