// Package intake says what an event must be, and where it belongs.
package intake
