// Package ops implements the operators of expressions. A meter limits the steps and memory of each.
package ops
