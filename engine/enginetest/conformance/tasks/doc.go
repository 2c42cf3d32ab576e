// Package tasks checks that stores of tasks keep the promises of their ports.
package tasks
