// Package enginetest is the harness of the tests: private PostgreSQL clusters, engines, scripted
// handlers, and faults. Its package conformance checks stores.
package enginetest
