// Package expr compiles and evaluates expressions. It checks what they read against a scope, derives the types
// of their values, and traces how each part got its value. A [Value] is YAML that may contain expressions.
package expr
