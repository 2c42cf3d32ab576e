// Package library has the functions that expressions may call.
package library
