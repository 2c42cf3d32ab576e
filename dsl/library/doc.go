// Package library lists the functions that expressions may call, and computes them.
package library
