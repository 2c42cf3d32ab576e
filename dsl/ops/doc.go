// Package ops computes with data: the operators of expressions, each under a meter that bounds steps and memory.
package ops
