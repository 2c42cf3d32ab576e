// Package credentials decides who may call the API. It has tokens, their permissions, and sessions
// of the console.
package credentials
