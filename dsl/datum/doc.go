// Package datum has the plain data of the language: kinds of values, JSON, paths, sizes, rates and secrets. It
// also formats them for messages.
package datum
