// Package intake says what an event must be, and where it belongs, and takes events in.
package intake
