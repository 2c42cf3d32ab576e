// Package datum holds the plain data of the language: the kinds of values, JSON, paths, sizes, rates and
// secrets, and how each is written for people.
package datum
