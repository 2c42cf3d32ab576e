// Package rules has the codes of all findings, each with an explanation and two example files.
package rules
