// Package rules has the codes of all findings, each with an explanation and two example files. They are in YAML files, one for each
// topic, so that an example looks as in a file of its own.
package rules
