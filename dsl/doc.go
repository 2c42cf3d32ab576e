// Package dsl reads pipelines and says what is wrong with them: bytes in, a tree with positions and diagnostics out.
package dsl
