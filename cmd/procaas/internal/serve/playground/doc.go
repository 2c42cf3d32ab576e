// Package playground tries pipelines that people type in the console, in a process of its own with bounded time and memory.
package playground
