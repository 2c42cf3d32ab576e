// Package enginetest is the harness of the tests: private PostgreSQL clusters, scripted handlers
// and the conformance suite of stores.
package enginetest
