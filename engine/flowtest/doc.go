// Package flowtest runs the tests of pipelines, *.test.yaml.
//
// A test submits events, answers the calls of handlers, and checks the results. It runs on an
// [engine.Virtual], which is the engine itself in virtual time.
package flowtest
