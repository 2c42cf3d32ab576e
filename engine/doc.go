// Package engine runs events through pipelines: a pure core, and a driver that gives it time, calls and a durable store.
package engine
