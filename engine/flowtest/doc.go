// Package flowtest runs the tests of pipelines, *.test.yaml.
//
// A test hands events in, answers the calls of handlers, and says what must come
// of it. It runs on an [engine.Virtual]: the engine itself, in virtual time.
package flowtest
