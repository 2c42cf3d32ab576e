// Package api serves the engine over HTTP.
package api
