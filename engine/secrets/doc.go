// Package secrets provides the secrets of a call, and removes them from everything that the call
// leaves behind: its error, its response, and its log records.
package secrets
