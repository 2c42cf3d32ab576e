// Package proof proves that critical handlers work without the optional ones. A fallback, a switch or a failure
// may leave these out at any time.
package proof
