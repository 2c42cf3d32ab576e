// Package handlers holds the built-in handler types, one file each.
package handlers
