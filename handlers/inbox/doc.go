// Package inbox has operators' view of an inbox over several databases, and their orders. The product has these other packages:
//
//   - cells makes one store of several databases.
//   - api serves the calls of operators, and remote calls them on a server.
//   - console has the page.
//   - addon plugs it in: flags, commands and metrics.
package inbox
