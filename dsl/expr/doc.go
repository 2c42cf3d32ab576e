// Package expr compiles expressions and evaluates them. It checks what they read against a scope, follows what
// is known of values through them, and traces how each part came to its value. A [Value] is YAML with expressions in it.
package expr
