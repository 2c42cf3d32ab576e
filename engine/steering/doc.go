// Package steering answers questions about the paths of a definition, and lets operators steer
// them. It shows the state of handlers and services. Operators switch, hold and limit paths with
// it. It takes part in the decisions about fallbacks, and wakes runs when the cause of their wait
// ends.
package steering
